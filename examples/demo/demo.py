# SPDX-License-Identifier: MIT
"""The feed-forward layers of a real model through the `ffn` command: ./dev demo runs this.

demo.py --ffn build/ffn --output FOLDER --model FOLDER [SENTENCE]    MiniLM (takes numpy)
demo.py --ffn build/ffn --output FOLDER                              the original Transformer's layer (Python alone)

Each result is held against the same layer in float64. Exit status: 1 if one is further off than report.LIMIT, or the work failed.
"""
import argparse
import sys

if sys.version_info < (3, 9):
    sys.exit("demo: takes Python 3.9 or newer, this is " + sys.version.split()[0])

import original
from report import Failure

SENTENCE = "The feed-forward network transforms every token on its own."


def main():
    parser = argparse.ArgumentParser(description="Runs the feed-forward layers of a model through the ffn command.")
    parser.add_argument("--ffn", required=True, metavar="PROGRAM", help="the ffn program")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where the arrays go")
    parser.add_argument("--model", metavar="FOLDER", help="MiniLM's model.safetensors, config.json and vocab.txt; without it: the original Transformer's layer")
    parser.add_argument("sentence", nargs="?", default=SENTENCE, help="what MiniLM reads")
    settings = parser.parse_args()
    try:
        if settings.model:
            import minilm  # takes numpy

            return minilm.demo(settings.ffn, settings.model, settings.output, settings.sentence)
        return original.demo(settings.ffn, settings.output)
    except (Failure, OSError, ImportError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
