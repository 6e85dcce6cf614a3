#!/usr/bin/env bash
# Proves that abidiff.sh lets additions pass and finds changes: a small library is changed in one way after the other.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null; then
  echo "skipped: abidiff is not installed (Debian: abigail-tools)"
  exit 77
fi

cat >ffn.h <<'HEADER'
#include <stdint.h>
typedef struct ffn_layer ffn_layer_t;
typedef struct ffn_later ffn_later_t;
typedef struct ffn_run {
    uint32_t struct_size;
    uint32_t dtype;
    int64_t stride[2];
    const ffn_later_t *later;
    void (*task)(void *user, int64_t index);
} ffn_run_t;
int32_t ffn_layer_run(const ffn_layer_t *layer, const ffn_run_t *run);
uint32_t ffn_version(void);
HEADER
cat >ffn.c <<'SOURCE'
#include "ffn.h"
struct ffn_layer { int width; };
int32_t ffn_layer_run(const ffn_layer_t *layer, const ffn_run_t *run) { return layer->width + (int32_t)run->struct_size; }
uint32_t ffn_version(void) { return 1; }
SOURCE
build() { gcc -g -O0 -fPIC -shared ffn.c -o "$1" -I. -ffile-prefix-map="$work/="; }
build base.so
abidw --no-corpus-path --no-comp-dir-path --no-show-locs base.so --out-file base.abi

failed=0
change() { # change EXPECTED-STATUS WHAT SED-PROGRAM: of header and source alike
  local status=0 printed
  sed -i.kept -E "$3" ffn.h ffn.c
  build changed.so
  printed=$("$here/abidiff.sh" compare base.abi changed.so ffn.h) || status=$?
  if cmp -s ffn.h ffn.h.kept && cmp -s ffn.c ffn.c.kept; then
    [ "$2" = nothing ] || { echo "$2: the change changes nothing"; failed=1; }
  fi
  mv ffn.h.kept ffn.h
  mv ffn.c.kept ffn.c
  if [ $status != "$1" ]; then
    printf '%s: expected status %s, got %s:\n%s\n' "$2" "$1" $status "$printed"
    failed=1
  fi
}
change 0 'nothing' ''
change 0 'a field at the end' 's/^\} ffn_run_t;/    uint64_t newer;\n&/'
change 0 'two fields at the end' 's/^\} ffn_run_t;/    uint64_t newer;\n    int64_t newest[4];\n&/'
change 0 'a new function' 's/^uint32_t (ffn_version)(.*)/&\nuint32_t ffn_added\2/'
change 0 'an opaque struct of the interface that is told' 's/^typedef struct ffn_later ffn_later_t;/typedef struct ffn_later { uint32_t struct_size, flags; } ffn_later_t;/'
change 0 'a private struct' 's/int width;/int width, height;/'
change 1 'a field in the middle' 's/^    int64_t stride/    uint64_t newer;\n&/'
change 1 'a field at the end and another type' 's/^    uint32_t dtype/    int32_t dtype/; s/^\} ffn_run_t;/    uint64_t newer;\n&/'
change 1 'a longer array' 's/stride\[2\]/stride[3]/'
change 1 'a field that is gone' 's/^    void \(\*task\).*//'
change 1 'a field of another name' 's/ dtype;/ type;/'
change 1 'two fields in each other'"'"'s place' '/stride/d; s/^    void \(\*task\).*/&\n    int64_t stride[2];/'
change 1 'signedness' 's/^    uint32_t dtype/    int32_t dtype/'
change 1 'a parameter of a callback' 's/int64_t index/int32_t index/'
change 1 'a parameter' 's/const ffn_run_t \*run\)/const ffn_run_t *run, int more)/'
change 1 'what a function returns' 's/^uint32_t ffn_version/uint64_t ffn_version/'
change 1 'a function that is gone' 's/ffn_version/ffn_other/'
exit $failed
