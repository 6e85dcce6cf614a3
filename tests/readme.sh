#!/usr/bin/env bash
# What README.md shows of C++ and Rust, and docs/training.md of mixtures in C too, are lines of the examples, which are compiled and run.
set -euo pipefail
cd "$(dirname "$0")/.."

shown_is_in() { # shown_is_in PAGE HEADING LANGUAGE EXAMPLE: the page's code of that language below the heading (all of it without one)
  local line lines=0
  while read -r line; do
    lines=$((lines + 1))
    sed 's/^ *//' "$4" | grep -xF -e "$line" >/dev/null || { echo "$1 has a line of $3 that $4 has not: $line"; exit 1; }
  done < <(awk -v heading="$2" -v fence="\`\`\`$3" '
    /^## / { here = $0 == heading } $0 == fence { on = here || heading == ""; next } /^```$/ { on = 0 } on && NF' "$1")
  [ $lines -gt 0 ] || { echo "$1 shows no $3"; exit 1; }
}
shown_is_in README.md "" cpp examples/cpp/ffn_example.cpp
shown_is_in README.md "" rust examples/rust/ffn_example.rs
shown_is_in docs/training.md "## A mixture of experts" c examples/c/train_mixture.c
shown_is_in docs/training.md "## A mixture of experts" cpp examples/cpp/train_mixture.cpp
shown_is_in docs/training.md "## A mixture of experts" rust examples/rust/train_mixture.rs
