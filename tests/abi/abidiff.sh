#!/usr/bin/env bash
# Holds the library, as the compiler laid it out in its debug information, against the committed dump of the last version with libabigail: what
# a program that is built already relies on may be added to and not changed.
#   abidiff.sh libffn | libffn-io    builds the library with debug information, and compares it with libffn.abi or libffn-io.abi beside this
#   abidiff.sh compare DUMP LIBRARY HEADER...
# Additions pass: functions, and fields at the end of a struct that begins with struct_size. With UPDATE=1 in the environment the dump is written
# anew: at a release, or where an interface that is not released is changed on purpose.
# Exits with 77 where libabigail (abidiff) is not installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null; then
  echo "skipped: abidiff is not installed (Debian: abigail-tools)"
  exit 77
fi

# The exported functions with all that their debug information tells of, compiled by gcc and not optimised: how a compiler describes what it
# optimised differs from version to version. What they call is not needed.
build() { # build LIBRARY: $work/LIBRARY.so
  local sources='api/*.c' map=ffn.map flags
  [ "$1" = libffn ] || sources='io/*.c' map=io/ffn_io.map
  read -ra flags < <(pkg-config --cflags jansson)
  # shellcheck disable=SC2086 # a pattern
  (cd "$source/src" && gcc -g -O0 -fPIC -shared -fvisibility=hidden -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 "${flags[@]}" -I../include -I. \
    $sources -Wl,--version-script=$map -Wl,-soname,"$1.so.0" -ffile-prefix-map="$source/=" -o "$work/$1.so")
}

# The structs of the public headers; all others are the library's own, behind opaque pointers.
public_only() { # public_only HEADER...
  printf '[suppress_type]\n  type_kind = struct\n  name_not_regexp = ^(%s)(_t)?$\n' \
    "$(sed -nE 's/^typedef struct (ffn_[a-z_]+) \{.*/\1/p' "$@" | sed 's/_t$//' | paste -sd'|')"
}

# Reads the report of abidiff --leaf-changes-only: prints what is no addition. A type that is told of first has its name in quotes at the start
# of a line; what follows, indented, is what changed in it.
no_additions() {
  awk '
    function tell() { if (title != "") print title; title = ""; print }
    /^(Leaf changes|Changed leaf types|Removed\/Changed\/Added) .*summary:/ || /^$/ { next }
    /^[0-9]+ Added (function|variable)s?:$/ { added = 1; next }
    /^[^ ]/ { added = 0; from = -1; impacted = 0; title = $0; if (!/^\047struct .* changed:$/) { title = ""; tell() } next }
    added && /^  \[A\] / { next }
    /^  type size hasn/ { next }
    /^  type size changed from [0-9]+ to [0-9]+/ { from = $5; if ($7 < from) tell(); next }
    /^  [0-9]+ data member insertions?:$/ { next }
    /^    \047.*\047, at offset [0-9]+ / {
      offset = $0; sub(/.*, at offset /, "", offset); sub(/ .*/, "", offset)
      if (from < 0 || offset + 0 < from + 0) tell()
      next
    }
    /^  (one|[0-9]+) impacted interfaces?:?/ { impacted = 1; next }
    impacted && /^    function / { next }
    { tell() }'
}

compare() { # compare DUMP LIBRARY HEADER...
  local status=0 changed
  public_only "${@:3}" >"$work/public.ini"
  abidiff --suppressions "$work/public.ini" --leaf-changes-only --impacted-interfaces --harmless "$1" "$2" >"$work/report" 2>&1 || status=$?
  # the bits of abidiff's exit status: 1 and 2 it could not compare, 4 something changed, 8 for certain incompatibly
  if [ $((status & 3)) != 0 ] || [ $status -gt 15 ]; then
    echo "abidiff failed with status $status:"
    cat "$work/report"
    return 1
  fi
  changed=$(no_additions <"$work/report")
  if [ -n "$changed" ] || [ $((status & 8)) != 0 ]; then
    echo "changed against ${1##*/}, which breaks programs that are built already:"
    echo "$changed"
    return 1
  fi
}

case ${1-} in
compare) compare "${@:2}" ;;
libffn | libffn-io)
  headers=("$source/include/ffn/ffn.h")
  [ "$1" = libffn ] || headers+=("$source/include/ffn/ffn_io.h")
  build "$1"
  if [ -n "${UPDATE-}" ]; then
    public_only "${headers[@]}" >"$work/public.ini"
    abidw --suppressions "$work/public.ini" --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed "$work/$1.so" --out-file "$here/$1.abi"
  fi
  compare "$here/$1.abi" "$work/$1.so" "${headers[@]}"
  ;;
*) exit 2 ;;
esac
