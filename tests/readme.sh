#!/usr/bin/env bash
# What README.md shows of C++ and Rust are lines of the examples, which are compiled and run.
set -euo pipefail
cd "$(dirname "$0")/.."

shown_is_in() { # shown_is_in LANGUAGE EXAMPLE
  local line lines=0
  while read -r line; do
    lines=$((lines + 1))
    sed 's/^ *//' "$2" | grep -qxF -e "$line" || { echo "README.md has a line of $1 that $2 has not: $line"; exit 1; }
  done < <(awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```$/ { on = 0 } on && NF' README.md)
  [ $lines -gt 0 ] || { echo "README.md shows no $1"; exit 1; }
}
shown_is_in cpp examples/cpp/ffn_example.cpp
shown_is_in rust examples/rust/ffn_example.rs
