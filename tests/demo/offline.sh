#!/usr/bin/env bash
# The demo without network: offline.sh FFN. Right results, the same again, and a failure where the program is wrong.
set -uo pipefail
ffn=$1
demo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../examples/demo" && pwd)/demo.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

# run STATUS FOLDER ARGUMENT...
run() {
  local wanted=$1 folder=$2 status=0
  shift 2
  python3 -B "$demo" --output "$folder" "$@" >out.txt 2>err.txt || status=$?
  [ "$status" = "$wanted" ] || fail "$* exits with $status, not $wanted: $(cat out.txt err.txt)"
}
complains() { # complains WORD: in one line
  if [ "$(wc -l <err.txt)" != 1 ] || ! grep -q "^demo: .*$1" err.txt; then fail "not a line with '$1' on standard error: $(cat err.txt)"; fi
}

run 0 first --ffn "$ffn"
grep -qE '^ +0  512-2048-512 +2,099,712 ' out.txt || fail "no line of the layer: $(cat out.txt)"
grep -qE '^total  1 layer +2,099,712 ' out.txt || fail "no totals: $(cat out.txt)"
grep -q '^outputs: first' out.txt || fail "not told where the outputs lie: $(cat out.txt)"
run 0 second --ffn "$ffn"
for file in model.safetensors input.npy output.npy; do
  cmp "first/$file" "second/$file" || fail "another $file the second time"
done

# a program that gives one wrong number: a little too large, or none
cat >wrong <<'TEXT'
#!/usr/bin/env python3
import struct, subprocess, sys
status = subprocess.run([FFN] + sys.argv[1:]).returncode
with open(sys.argv[sys.argv.index("--output") + 1], "r+b") as file:
    file.seek(-4, 2)
    last = struct.unpack("<f", file.read(4))[0]
    file.seek(-4, 2)
    file.write(struct.pack("<f", WRONG))
sys.exit(status)
TEXT
for value in 'last + 1e-5' 'float("nan")'; do
  sed "s|FFN|\"$ffn\"|; s|WRONG|$value|" wrong >wrong.py && chmod +x wrong.py
  run 1 wrong_output --ffn "$work/wrong.py"
  grep -q 'FAILED: more than 2e-06' out.txt || fail "$value instead of the last number is not told: $(cat out.txt)"
done

run 1 none --ffn ./no-such-program && complains no-such-program
run 1 first/input.npy --ffn "$ffn" && complains first/input.npy
printf '#!/bin/sh\necho "ffn: no way" >&2\nexit 1\n' >refusing && chmod +x refusing
run 1 none --ffn ./refusing && complains "ffn: no way"
exit $failed
