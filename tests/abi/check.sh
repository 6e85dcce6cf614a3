#!/usr/bin/env bash
# Compares the binary interface with the committed baselines beside this script: a line that changed or went breaks programs that are built
# already, and a new line has to be added to the baseline in the same commit.
#   check.sh symbols LIBFFN.SO LIBFFN.A    symbols.txt: SONAME, that it stays loaded, and every exported symbol with its version
#   check.sh layout                        layout.txt: every constant, field and function of the header
# For libffn-io, symbols_io.txt and layout_io.txt: check.sh symbols LIBFFN-IO.SO LIBFFN-IO.A, check.sh layout io
# With UPDATE=1 in the environment new lines are added; changed and removed ones still fail.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

symbols() { # symbols LIBFFN.SO
  readelf -d "$1" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/SONAME \1/p; s/.*\(FLAGS_1\).*(NODELETE).*/\1/p'
  # the version node's own name is an absolute symbol (A)
  nm --dynamic --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $3 }' | sort
}
stray_globals() { # stray_globals LIBFFN.A: what could collide with a program's own names
  nm --extern-only --defined-only "$1" | awk 'NF == 3 && $3 !~ /^ffn(i|io)?_/ { print $3 }'
}
layout() { # layout HEADER BASELINE
  if [ "$(getconf LONG_BIT)" != 64 ]; then
    cat "$2" # recorded for 64 bits; others differ by the size of a pointer
    return
  fi
  local header=$here/../../include/ffn/$1
  # the header alone: with the others empty only its own text is left
  mkdir -p "$work/empty/ffn"
  touch "$work/empty/stddef.h" "$work/empty/stdint.h"
  echo '#define FFN_API' >"$work/empty/ffn/ffn.h"
  gcc -E -P -nostdinc -I"$work/empty" "$header" >"$work/header.txt"
  gcc -E -dM -nostdinc -I"$work/empty" "$header" | grep '^#define FFN_' | grep -v FFN_VERSION_ | sort >>"$work/header.txt"
  awk -v header="ffn/$1" -f "$here/header.awk" "$work/header.txt" >"$work/layout.c"
  gcc -std=c11 -Wall -Werror -I"$here/../../include" "$work/layout.c" -o "$work/layout"
  "$work/layout"
}

case $1 in
symbols)
  baseline=$here/symbols.txt
  case $2 in *libffn-io.so) baseline=$here/symbols_io.txt ;; esac
  symbols "$2" >"$work/now"
  if others=$(grep -vE '^(SONAME libffn|NODELETE$|ffn_[a-z0-9_]+@@FFN_[0-9])' "$work/now"); then
    echo "exported by $2 without the prefix ffn_ and a version:"
    echo "$others"
    exit 1
  fi
  if strays=$(stray_globals "$3" | grep .); then
    echo "global symbols of $3 without the prefix ffn_, ffni_ or ffnio_:"
    echo "$strays"
    exit 1
  fi
  ;;
layout)
  baseline=$here/layout${2+_$2}.txt
  layout "ffn${2+_$2}.h" "$baseline" >"$work/now"
  ;;
*) exit 2 ;;
esac

status=0
if gone=$(grep -vxFf "$work/now" "$baseline"); then
  echo "changed or removed, which breaks programs that are built already (a wrong line in ${baseline##*/} itself is corrected by hand):"
  echo "$gone"
  status=1
fi
if new=$(grep -vxFf "$baseline" "$work/now"); then
  if [ -n "${UPDATE-}" ] && [ $status = 0 ]; then
    cp "$work/now" "$baseline"
    echo "added to tests/abi/${baseline##*/}:"
  else
    echo "new, and missing in tests/abi/${baseline##*/} (add them with UPDATE=1 tests/abi/check.sh $*):"
    status=1
  fi
  echo "$new"
fi
exit $status
