#!/usr/bin/env bash
# Builds and runs consumer.c and io_consumer.c as users of libffn and libffn-io would.
#   check.sh WAY BUILD     BUILD: the build directory of libffn. WAY:
#     installed    find_package on an installed tree that was moved after it was installed
#     pkg-config   plain compiler calls with pkg-config on such a tree: shared, static, C++
#     subproject   add_subdirectory
#     build-tree   the library where it was built, not installed, by its path and with pkg-config; also README.md's programs, in one
set -euo pipefail
way=$1
build=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
version=$(sed -nE 's/^#define FFN_VERSION_(MAJOR|MINOR|PATCH) //p' "$source/include/ffn/ffn.h" | paste -sd.)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH

quietly() { # runs a command; its output is of interest only if it fails
  "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; return 1; }
}
fail() {
  echo "$*"
  exit 1
}
install_and_move() { # leaves the installed tree in $work/moved
  quietly cmake --install "$build" --prefix "$work/installed"
  mv "$work/installed" "$work/moved"
  local listed
  listed=$(cd "$work/moved" && find . -not -type d | sed -E 's|lib(/[a-z0-9_]+-linux-[a-z]+)?/|lib/|; s|^lib64/|lib/|; s|-release\.cmake|.cmake|' | sort -u)
  diff - <(echo "$listed") <<LIST || fail "these files are installed, instead of (<) those"
./bin/ffn
./include/ffn/ffn.h
./include/ffn/ffn.hpp
./include/ffn/ffn_base.hpp
./include/ffn/ffn_conv.hpp
./include/ffn/ffn_health.hpp
./include/ffn/ffn_io.h
./include/ffn/ffn_io.hpp
./include/ffn/ffn_moe.hpp
./include/ffn/ffn_moe_training.hpp
./lib/cmake/ffn/ffn-config-version.cmake
./lib/cmake/ffn/ffn-config.cmake
./lib/cmake/ffn/ffn-io-shared.cmake
./lib/cmake/ffn/ffn-io-static.cmake
./lib/cmake/ffn/ffn-shared.cmake
./lib/cmake/ffn/ffn-static.cmake
./lib/libffn-io.a
./lib/libffn-io.so
./lib/libffn-io.so.0
./lib/libffn-io.so.$version
./lib/libffn.a
./lib/libffn.so
./lib/libffn.so.0
./lib/libffn.so.$version
./lib/pkgconfig/ffn-io.pc
./lib/pkgconfig/ffn.pc
./share/bash-completion/completions/ffn
./share/fish/vendor_completions.d/ffn.fish
./share/zsh/site-functions/_ffn
LIST
  # what the files say must hold anywhere
  if named=$(grep -rlF -e "$build" -e "$source" -e "$work/installed" "$work/moved" --include='*.pc' --include='*.cmake'); then
    fail "these installed files name a directory of the build: $named"
  fi
  if find "$work/moved" -name 'lib*.so' -exec readelf -d {} + | grep -E 'RPATH|RUNPATH'; then
    fail "an installed library has a run path"
  fi
  "$work/moved/bin/ffn" --version >/dev/null || fail "the installed program does not run"
}
build_and_run() { # build_and_run CMAKE-ARGUMENT...
  quietly cmake -S "$here" -B "$work/consumer" "$@"
  quietly cmake --build "$work/consumer" -j "$(nproc)"
  "$work/consumer/with_shared"
  "$work/consumer/with_static"
  "$work/consumer/with_cxx"
  "$work/consumer/io_with_shared"
  "$work/consumer/io_with_static"
  linked_shared "$work/consumer/with_shared"
  linked_static "$work/consumer/with_static"
  linked_shared "$work/consumer/io_with_shared"
  linked_static "$work/consumer/io_with_static"
}
linked_shared() { readelf -d "$1" | grep -q 'NEEDED.*\[libffn\.so\.0\]' || fail "$1 does not need libffn.so.0"; }
linked_static() { if readelf -d "$1" | grep 'NEEDED.*libffn'; then fail "$1 needs libffn.so"; fi; }

case $way in
installed)
  install_and_move
  build_and_run -DCMAKE_PREFIX_PATH="$work/moved"
  ;;
pkg-config)
  install_and_move
  pc=$(find "$work/moved" -name ffn.pc)
  lib=$(dirname "$(dirname "$pc")")
  export PKG_CONFIG_PATH=${pc%/ffn.pc}
  [ "$(pkg-config --modversion ffn)" = "$version" ] || fail "ffn.pc has version $(pkg-config --modversion ffn), the header $version"
  read -ra flags < <(pkg-config --cflags --libs ffn)
  read -ra static_flags < <(pkg-config --static --cflags --libs ffn)
  case "${flags[*]}" in *openblas*) fail "shared users get OpenBLAS's flags: ${flags[*]}" ;; esac
  PKG_CONFIG_LIBDIR=${pc%/ffn.pc} PKG_CONFIG_PATH='' pkg-config --cflags --libs ffn ffn-io >/dev/null ||
    fail "shared users need the .pc file of another library"

  cc -std=c11 "$here/consumer.c" "${flags[@]}" -o "$work/shared"
  LD_LIBRARY_PATH=$lib "$work/shared"
  linked_shared "$work/shared"
  read -ra io_flags < <(pkg-config --cflags --libs ffn-io)
  read -ra io_static_flags < <(pkg-config --static --cflags --libs ffn-io)
  case "${io_flags[*]}" in *jansson*) fail "shared users get jansson's flags: ${io_flags[*]}" ;; esac
  cc -std=c11 "$here/io_consumer.c" "${io_flags[@]}" -o "$work/io_shared"
  LD_LIBRARY_PATH=$lib "$work/io_shared"
  linked_shared "$work/io_shared"
  c++ -x c++ -std=c++11 "$here/consumer.c" -x none "${flags[@]}" -o "$work/cxx"
  LD_LIBRARY_PATH=$lib "$work/cxx"
  c++ -std=c++17 "$source/examples/cpp/ffn_example.cpp" "${flags[@]}" -o "$work/cxx17"
  LD_LIBRARY_PATH=$lib "$work/cxx17" >/dev/null
  # With both there the linker takes the shared one: a static user removes it, or never installed it.
  rm "$lib"/libffn*.so*
  cc -std=c11 "$here/consumer.c" "${static_flags[@]}" -o "$work/static"
  "$work/static"
  linked_static "$work/static"
  cc -std=c11 "$here/io_consumer.c" "${io_static_flags[@]}" -o "$work/io_static"
  "$work/io_static"
  linked_static "$work/io_static"
  # a program without any shared library, where the others are there as archives too
  if echo 'int main(void) { return 0; }' | cc -static -x c - -lopenblas -lm -o "$work/plain" 2>/dev/null; then
    cc -static -std=c11 "$here/consumer.c" "${static_flags[@]}" -o "$work/all_static"
    "$work/all_static"
  fi
  ;;
subproject)
  build_and_run -DFFN_SOURCE_DIR="$source" -DFFN_BUILD_IO=ON
  if cmake --install "$work/consumer" --prefix "$work/nothing" 2>/dev/null | grep -i ffn; then
    fail "a subproject must not install libffn"
  fi
  ;;
build-tree)
  cc -std=c11 -I"$source/include" "$here/consumer.c" "$build/libffn.so" -Wl,-rpath,"$build" -o "$work/shared"
  "$work/shared"
  awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/README.md" >"$work/readme.c"
  cc -std=c11 -Wall -Wextra -Werror -I"$source/include" "$work/readme.c" "$build/libffn-io.so" "$build/libffn.so" -Wl,-rpath,"$build" -o "$work/readme"
  "$work/readme"
  read -ra blas < <(pkg-config --libs openblas)
  cc -std=c11 -I"$source/include" "$here/consumer.c" "$build/libffn.a" "${blas[@]}" -lm -pthread -o "$work/static"
  "$work/static"
  linked_static "$work/static"
  # pkg-config prefers ffn-uninstalled.pc, which is in the build directory
  export PKG_CONFIG_PATH=$build
  for library in '' io_; do
    read -ra flags < <(pkg-config --cflags --libs "ffn${library:+-io}")
    cc -std=c11 "$here/${library}consumer.c" "${flags[@]}" -o "$work/${library}uninstalled"
    LD_LIBRARY_PATH=$build "$work/${library}uninstalled"
    linked_shared "$work/${library}uninstalled"
  done
  ;;
*) fail "unknown way: $way" ;;
esac
