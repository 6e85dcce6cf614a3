# SPDX-License-Identifier: MIT
"""all-MiniLM-L6-v2, a BERT of six layers: embeddings and attention here in float64, the feed-forward layers through the `ffn` command."""
import hashlib
import json
import math
import os

import numpy as np

import wordpiece
from report import Failure, Ffn, Table, compare

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the published model.safetensors


def read_safetensors(path):
    """The float tensors of a file, not copied."""
    data = np.memmap(path, mode="r")
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise Failure(f"{path}: is not the file that was published; remove it, then try again")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    return {
        name: data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]].view("<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] == "F32"
    }


erf = np.vectorize(math.erf, otypes=[np.float64])


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class MiniLM:
    """The model in float64. Rows are tokens."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.vocabulary = wordpiece.read_vocabulary(os.path.join(folder, "vocab.txt"))
        self.tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.layers = self.config["num_hidden_layers"]

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].astype(np.float64).T + self.tensors[name + ".bias"]

    def layer_norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"])
        return normed * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def tokenise(self, sentence):
        """The pieces of a sentence and their numbers."""
        words, most = wordpiece.tokenise(sentence, self.vocabulary), self.config["max_position_embeddings"]
        if len(words) > most:
            raise Failure(f"the sentence has {len(words)} tokens, must have at most {most}")
        return words, [self.vocabulary[word] for word in words]

    def embed(self, ids):
        words, positions, types = (self.tensors[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type"))
        x = words[ids].astype(np.float64) + positions[: len(ids)] + types[0]
        return self.layer_norm("embeddings.LayerNorm", x)

    def attend(self, layer, x):
        """The attention sublayer: what the feed-forward layer receives."""
        name = f"encoder.layer.{layer}.attention."
        query, key, value = (
            self.linear(f"{name}self.{part}", x).reshape(len(x), self.config["num_attention_heads"], -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        mixed = softmax(query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])) @ value
        return self.layer_norm(name + "output.LayerNorm", x + self.linear(name + "output.dense", mixed.swapaxes(0, 1).reshape(x.shape)))

    def feed_forward(self, layer, x):
        """What `ffn` has to give: LayerNorm(x + W2 gelu(W1 x + b1) + b2)."""
        name = f"encoder.layer.{layer}."
        hidden = self.linear(name + "intermediate.dense", x)
        hidden *= (1 + erf(hidden / math.sqrt(2))) / 2
        return self.layer_norm(name + "output.LayerNorm", x + self.linear(name + "output.dense", hidden))


def demo(program, model_folder, folder, sentence):
    os.makedirs(folder, exist_ok=True)

    def place(layer, what):
        return os.path.join(folder, f"layer{layer}-{what}.npy")

    model = MiniLM(model_folder)
    words, ids = model.tokenise(sentence)
    parameters = sum(tensor.size for tensor in model.tensors.values())
    print(f"all-MiniLM-L6-v2: {model.layers} layers, {parameters:,} parameters; feed-forward: GELU (erf), biases, residual, LayerNorm")
    print(f"{len(words)} tokens: {' '.join(words)}")

    x = exact = model.embed(ids)
    ffn = Ffn(program, model_folder)
    np.save(place(0, "input"), x.astype(np.float32))
    seconds = ffn.time(model.layers, place(0, "input"), place(0, "output"))

    table = Table(len(words))
    for layer in range(model.layers):
        received = model.attend(layer, x).astype(np.float32)
        np.save(place(layer, "input"), received)
        told = ffn.run(str(layer), place(layer, "input"), place(layer, "output"))["layers"][0]
        x = np.load(place(layer, "output"))
        table.add(told, seconds[layer], *compare(x.ravel().tolist(), model.feed_forward(layer, received.astype(np.float64)).ravel().tolist()))
        exact = model.feed_forward(layer, model.attend(layer, exact))
    status = table.finish()
    error, largest = compare(x.ravel().tolist(), exact.ravel().tolist())
    print(f"the last hidden states against the whole model in float64: {error:.1e}, {error / largest:.1e} of the largest value")
    print(f"outputs: {folder} (layerN-input.npy, layerN-output.npy; layer{model.layers - 1}-output.npy has the last hidden states)")
    return status
