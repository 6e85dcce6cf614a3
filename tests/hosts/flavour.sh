#!/usr/bin/env bash
# Runs host programs, and tests of libffn, with one of Debian's three builds of OpenBLAS, without a change to the machine: where the package is not
# installed it is fetched and unpacked below the build directory.
#   flavour.sh serial|pthread|openmp BUILD PROGRAM...
# Exits with 77 where there is neither the package nor a way to fetch it.
set -euo pipefail
flavour=$1
build=$(cd "$2" && pwd)
unpacked=$build/openblas

folder() { # folder ROOT: of the flavour's library below it
  local found
  found=$(compgen -G "$1/usr/lib/*/openblas-$flavour/libopenblas.so.0" | head -n 1) && dirname "$found"
}
fetch() {
  local work
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  work=$(mktemp -d)
  (cd "$work" && timeout 120 apt-get -qq download "libopenblas0-$flavour" >"$work/log" 2>&1) && mkdir -p "$unpacked" &&
    dpkg-deb -x "$work"/libopenblas0-*.deb "$unpacked"
  rm -rf "$work"
}
library=$(folder '' || folder "$unpacked") || { fetch && library=$(folder "$unpacked"); } || {
  echo "skipped: libopenblas0-$flavour is neither installed nor can it be fetched"
  exit 77
}

export LD_LIBRARY_PATH=$library FFN_TEST_FLAVOUR=$flavour
status=0
for program in "${@:3}"; do
  echo "== ${program##*/} with $library"
  "$program" || status=1
done
exit $status
