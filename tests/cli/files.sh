#!/usr/bin/env bash
# Arrays in and out: any leading dimensions, blocks of rows, the output that is there whole or not at all.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
helper model model.safetensors
run=(ffn run model.safetensors --layer 0 --quiet)

# ---------------------------------------------------------------- shapes
helper random row.npy 1 24
helper random rows.npy 1 1 24
helper random deep.npy 1 1 1 1 1 1 24
helper random none.npy 1 3 0 24
helper random scalar.npy 1
for shape in row rows deep none; do
  expect 0 "${run[@]}" --input $shape.npy --output $shape-y.npy
  [ "$(head -c 128 $shape.npy | strings | head -n 1)" = "$(head -c 128 $shape-y.npy | strings | head -n 1)" ] || fail "the shape of $shape.npy"
done
[ "$(tail -c 96 row-y.npy | cksum)" = "$(tail -c 96 rows-y.npy | cksum)" ] || fail "a vector is a row"
[ "$(tail -c 96 row-y.npy | cksum)" = "$(tail -c 96 deep-y.npy | cksum)" ] || fail "six dimensions"
expect 1 "${run[@]}" --input scalar.npy --output y.npy && says scalar.npy "dimension"

# ---------------------------------------------------------------- blocks of rows
helper random large.npy 7 9000 24
expect 0 ffn run model.safetensors --layer all --input large.npy --output large-y.npy --json
grep -q '"block_rows": 4096' out.txt || fail "block_rows: $(grep block_rows out.txt)"
for first in 0 4090 8192 8990; do
  helper slice large.npy $first 10 x.npy
  helper slice large-y.npy $first 10 expected.npy
  expect 0 ffn run model.safetensors --layer all --input x.npy --output y.npy --quiet
  near y.npy expected.npy 1e-6 "rows $first to $((first + 9)) of many"
done

# ---------------------------------------------------------------- in the place of another file
expect 0 "${run[@]}" --input large.npy --output large-y.npy
cp large.npy place.npy
expect 0 "${run[@]}" --input place.npy --output place.npy
same place.npy large-y.npy "the output in the input's place"
mkdir model && cp model.safetensors model/
ln large-y.npy link.npy
expect 0 "${run[@]}" --input rows.npy --output link.npy
same large-y.npy place.npy "a hard link of the output's name keeps the old file"

# ---------------------------------------------------------------- failures leave what was there
rm -rf ./*.npy model
helper random x.npy 1 3000 24
cp x.npy cut.npy && truncate -s -4 cut.npy
echo before >y.npy
before=(cut.npy model.safetensors x.npy y.npy)
expect 1 "${run[@]}" --input cut.npy --output y.npy && says cut.npy
expect 1 "${run[@]}" --input x.npy --output no-such-folder/y.npy && says no-such-folder/y.npy
expect 1 "${run[@]}" --input x.npy --output x.npy/y.npy && says x.npy/y.npy
expect 1 "${run[@]}" --input x.npy --output . && says folder
expect 1 "${run[@]}" --input x.npy --output /dev/full && says /dev/full
expect 1 "${run[@]}" --input x.npy --output /proc/y.npy && says /proc/y.npy
[ -c /dev/full ] || fail "/dev/full has been replaced"
nothing_else "${before[@]}"
limited() { (ulimit -f 100 && "$@"); } # files of at most 100 KiB: what a full disk does
expect 1 limited "${run[@]}" --input x.npy --output y.npy && says y.npy
nothing_else "${before[@]}"
[ "$(cat y.npy)" = before ] || fail "a failure has changed the output"

# ---------------------------------------------------------------- signals
helper random x.npy 1 60000 24
many=$(printf '0-2,%.0s' {1..300})0
long=${many:0:400}0 # a second or more
interrupt() { # interrupt SIGNAL STATUS
  local status=0 waited=0
  set -m # else SIGINT is ignored in the background
  ${launcher[@]+"${launcher[@]}"} "$FFN" run model.safetensors --layer "$many" --input x.npy --output y.npy 2>err.txt >out.txt &
  local process=$!
  set +m
  until compgen -G '.ffn-*' >/dev/null || [ $waited = 600 ]; do sleep 0.05; waited=$((waited + 1)); done
  compgen -G '.ffn-*' >/dev/null || fail "no temporary file has appeared, or it does not begin with .ffn-"
  kill -s "$1" $process
  wait $process 2>/dev/null || status=$?
  [ $status = "$2" ] || fail "SIG$1 ends the program with $status, not $2"
  nothing_else "${before[@]}"
  [ "$(cat y.npy)" = before ] || fail "SIG$1 has changed the output"
}
if [ -z "${FFN_TEST_SIGNALS_WAIT-}" ]; then
  interrupt INT 130
  interrupt TERM 143
  interrupt HUP 129
fi

# ---------------------------------------------------------------- the progress bar
[ -z "${FFN_TEST_QUICK-}" ] || finish # it takes work that takes its time
helper random x.npy 1 20000 24
if [ "$(script -qec 'echo here' /dev/null 2>/dev/null | tr -d '\r')" = here ]; then
  script -qec "'$FFN' run model.safetensors --layer $long --input x.npy --output y.npy --quiet" /dev/null >terminal.txt
  grep -q 'running \[#*' terminal.txt || fail "no progress bar on a terminal: $(head -c 300 terminal.txt)"
  rm terminal.txt
fi
expect 0 ffn run model.safetensors --layer "$long" --input x.npy --output y.npy --quiet
[ ! -s err.txt ] || fail "a progress bar in a file: $(head -c 300 err.txt)"
finish
