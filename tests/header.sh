#!/usr/bin/env bash
# The public header compiles alone, as C and as C++, without a warning, with every compiler that is here. Also as the only thing a program knows
# of the library: FFN_NO_VISIBILITY, and included twice.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#include <ffn/ffn.h>\n#include <ffn/ffn.h>\nint main(void) { return FFN_OK; }\n' >"$work/program.c"

compiles() { # compiles COMPILER LANGUAGE FLAG...
  echo "$*"
  "$1" -x "$2" "${@:3}" -Iinclude -Wall -Wextra -Wpedantic -Wundef -Wconversion -Werror -fsyntax-only "$work/program.c"
}
compilers=0
for compiler in gcc clang; do
  command -v "$compiler" >/dev/null || continue
  compilers=$((compilers + 1))
  compiles "$compiler" c -std=c11 -Wshadow -Wstrict-prototypes
  compiles "$compiler" c -std=c11 -DFFN_NO_VISIBILITY
  compiles "$compiler" c -std=c2x
  compiles "$compiler" c++ -std=c++11
  compiles "$compiler" c++ -std=c++20
done
[ $compilers -gt 0 ]

# Another language's bindings are generated from it: nothing but the two standard headers, no inline function, no macro with arguments.
if includes=$(grep -E '^ *# *include' include/ffn/ffn.h | grep -vE '<std(def|int)\.h>'); then
  echo "include/ffn/ffn.h includes more than stddef.h and stdint.h: $includes"
  exit 1
fi
if forbidden=$(grep -nE '^ *# *define +[A-Za-z0-9_]+\(|\b(inline|union|bool|enum +[a-z])' <(gcc -fpreprocessed -dD -E -P include/ffn/ffn.h 2>/dev/null)); then
  echo "include/ffn/ffn.h has what other languages cannot bind: $forbidden"
  exit 1
fi
