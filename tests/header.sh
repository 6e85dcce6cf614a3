#!/usr/bin/env bash
# Each public header compiles alone, as C and as C++ (the .hpp as C++17 and C++20), without a warning, with every compiler that is here. Also as the
# only thing a program knows of the library: FFN_NO_VISIBILITY, and included twice. And the .hpp wrap what the libraries export.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# All that each compiler can say of a header; for clang less what it says of newer standards to users of older ones, and of pointers as such.
declare -A warnings=(
  [gcc]="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Wsign-conversion -Wcast-qual -Wcast-align=strict -Wpadded -Wredundant-decls"
  [clang]="-Weverything -Wno-unknown-warning-option -Wno-pre-c11-compat -Wno-c++98-compat -Wno-c++98-compat-pedantic -Wno-unsafe-buffer-usage"
)
compiles() { # compiles COMPILER LANGUAGE FLAG...
  local flags
  echo "$*"
  read -ra flags <<<"${warnings[$1]}"
  "$1" -x "$2" "${@:3}" -Iinclude "${flags[@]}" -Werror -fsyntax-only "$work/program.c"
}
# Another language's bindings are generated from it: nothing but the two standard headers (and ffn.h), no inline function, no macro with arguments.
check() { # check HEADER ALLOWED-INCLUDES
  local compiler compilers=0 includes forbidden
  printf '#include <%s>\n#include <%s>\nint main(void) { return FFN_OK; }\n' "$1" "$1" >"$work/program.c"
  for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    compilers=$((compilers + 1))
    compiles "$compiler" c -std=c11 -Wstrict-prototypes -Wmissing-prototypes
    compiles "$compiler" c -std=c11 -DFFN_NO_VISIBILITY
    compiles "$compiler" c -std=c2x
    compiles "$compiler" c++ -std=c++11
    compiles "$compiler" c++ -std=c++20
  done
  [ $compilers -gt 0 ]
  if includes=$(grep -E '^ *# *include' "include/$1" | grep -vE "$2"); then
    echo "include/$1 includes more than it may: $includes"
    return 1
  fi
  if forbidden=$(grep -nE '^ *# *define +[A-Za-z0-9_]+\(|\b(inline|union|bool|enum +[a-z])' \
    <(gcc -fpreprocessed -dD -E -P "include/$1" 2>/dev/null)); then
    echo "include/$1 has what other languages cannot bind: $forbidden"
    return 1
  fi
}
check ffn/ffn.h '<std(def|int)\.h>'
check ffn/ffn_io.h '<ffn/ffn\.h>'

# The C++ headers are classes: a vtable, and padding behind a status, are nothing to warn of.
warnings[gcc]="${warnings[gcc]} -Wno-padded -Wold-style-cast -Wnon-virtual-dtor -Wdouble-promotion"
warnings[clang]="${warnings[clang]} -Wno-padded -Wno-weak-vtables -Wno-pre-c++17-compat -Wno-format-nonliteral"
check_cxx() { # check_cxx HEADER
  local compiler standard
  printf '#include <%s>\n#include <%s>\nint main() { return FFN_OK; }\n' "$1" "$1" >"$work/program.c"
  for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    for standard in c++17 c++20; do
      compiles "$compiler" c++ -std=$standard
      compiles "$compiler" c++ -std=$standard -fno-exceptions
    done
  done
}
for header in include/ffn/*.hpp; do check_cxx "${header#include/}"; done

# Every exported function is in one of the .hpp, or is used as in C: it cannot fail, or it is of files that C++ has other means for.
as_in_c='ffn_(version|version_string|abi_version|build_info|status_name|activation_name|io_status_name|npy_[a-z_]+)'
missing=$(sed -nE 's/^ *(ffn_[a-z0-9_]+);$/\1/p' src/ffn.map src/io/ffn_io.map | grep -vxE "$as_in_c" | while read -r name; do
  grep -qw "$name" include/ffn/*.hpp || echo "$name"
done)
[ -z "$missing" ] || { echo "no .hpp has ${missing//$'\n'/, }"; exit 1; }
