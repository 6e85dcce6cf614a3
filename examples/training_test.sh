#!/usr/bin/env bash
# A training example in C, short: training_test.sh PROGRAM. It learns; stopped and gone on with, it ends in the same bits; what is not its state is
# refused in one line and left alone.
set -uo pipefail
program=$1
files=$(cd "$(dirname "${BASH_SOURCE[0]}")/demo" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OPENBLAS_NUM_THREADS=1 # small products: others would wait for each other
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

arguments=() steps=80
if [[ $program = *train_students ]]; then
  command -v python3 >/dev/null || exit 77
  # a teacher: 200 rows of 12 numbers that look random, and y = tanh(2 x_i x_{i+1}) of them, divided by its spread
  python3 -B - "$files" <<'TEXT'
import math, sys
from array import array

sys.path.insert(0, sys.argv[1])
import files

state, x, y = 1, array("f"), array("f")
for _ in range(200):
    row = []
    for _ in range(12):
        state = (state * 1664525 + 1013904223) % 2**32
        row.append(state / 2**31 - 1)
    out = [math.tanh(2 * row[i] * row[i - 1]) for i in range(12)]
    mean = sum(out) / 12
    spread = math.sqrt(sum((v - mean) ** 2 for v in out) / 12)
    x.extend(row)
    y.extend((v - mean) / spread for v in out)
files.write_npy("x.npy", (200, 12), x)
files.write_npy("y.npy", (200, 12), y)
TEXT
  arguments=(x.npy y.npy)
fi

run() { # run STATUS ARGUMENT...
  local wanted=$1 status=0
  shift
  "$program" "${arguments[@]}" "$@" >out.txt 2>err.txt || status=$?
  [ "$status" = "$wanted" ] || fail "$* exits with $status, not $wanted: $(cat out.txt err.txt)"
}
complains() { # complains WORDS: in one line
  if [ "$(wc -l <err.txt)" != 1 ] || ! grep -q "$1" err.txt; then fail "not a line with '$1' on standard error: $(cat err.txt)"; fi
}

run 0 --steps $steps --state whole.safetensors
cp out.txt whole.txt
grep -q '^the curves are in .*tsv' whole.txt || fail "not told where the curves are: $(cat whole.txt)"
for tsv in ./*.tsv; do [ "$(wc -l <"$tsv")" -ge 5 ] || fail "$tsv is short: $(cat "$tsv")"; done
# each learner's error falls: the first and the last line of progress
awk '/^step/ { for (i = 1; i < NF; i++) if ($i ~ /^[a-z]+(-[0-9]+)?$/ && $(i + 1) ~ /^[0-9.]+$/ && $i != "step" && $i != "of") { if (!($i in first)) first[$i] = $(i + 1); last[$i] = $(i + 1) } }
  END { n = 0; for (name in first) { n++; if (!(last[name] < 0.97 * first[name])) { print name, first[name], last[name]; bad = 1 } } exit bad || n < 2 }' whole.txt ||
  fail "nothing was learned: $(cat whole.txt)"

run 0 --steps $steps --stop 33 --state parts.safetensors
grep -q '^stopped after step 33' out.txt || fail "not told that it stopped: $(cat out.txt)"
run 0 --steps $steps --stop 34 --state parts.safetensors
run 0 --steps $steps --state parts.safetensors
grep -q '^going on from step 34' out.txt || fail "not told where it goes on: $(cat out.txt)"
cmp whole.safetensors parts.safetensors || fail "other bits after two stops"

# the most points of a curve
run 0 --steps 79 --stop 78 --state odd.safetensors
run 0 --steps 79 --state odd.safetensors

run 1 --steps $((steps + 1)) --state parts.safetensors
complains "with other settings"
run 1 --steps $steps --seed 2 --state parts.safetensors
complains "with other settings"
cmp whole.safetensors parts.safetensors || fail "a state that was refused has changed"
head -c 1000 whole.safetensors >cut.safetensors
run 1 --steps $steps --state cut.safetensors
complains "cut.safetensors"
run 1 --steps $steps --stop 1 --state none/state.safetensors
complains "none/state.safetensors"
run 2 --steps x
complains "steps is x"
run 2 --walk
complains "usage"
exit $failed
