#!/usr/bin/env bash
# The command line: what is wrong with it, exit statuses, one line per error, help and its examples, JSON.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
helper model model.safetensors
helper parts other.safetensors model.safetensors
helper random x.npy 1 3 5 24
helper random narrow.npy 1 3 23

# ---------------------------------------------------------------- status 2: the command line is wrong
expect 2 ffn && says "no command"
expect 2 ffn frobnicate && says '"frobnicate"' "--help"
expect 2 ffn help frobnicate && says '"frobnicate"'
for command in info run stats params bench; do
  expect 2 ffn $command --frobnicate && says "$command" '"--frobnicate"' "ffn $command --help"
  expect 2 ffn $command -x && says '"-x"'
  expect 2 ffn $command --json=1 && says "--json takes no value"
  expect 2 ffn $command one two three && says "$command"
done
expect 2 ffn info && says "no MODEL"
expect 2 ffn info model.safetensors --layer && says "--layer needs a value"
expect 2 ffn info model.safetensors --layer -1 && says '"-1"' "from 0"
expect 2 ffn params --d-model 8 && says "--d-ff"
for wrong in 0 -1 1.5 1e3 '' ' 8' 8x 536870913 99999999999999999999; do
  expect 2 ffn params --d-model "$wrong" --d-ff 8 && says "--d-model is \"$wrong\"" "whole number from 1 to 536870912"
done
expect 2 ffn bench --d-model 8 --d-ff 8 --tokens 1,,8 && says '--tokens is ""'
expect 2 ffn bench --d-model 8 --d-ff 8 --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 && says "more than 16"
expect 2 ffn bench --d-model 8 --d-ff 8 --activation gelo && says gelo gelu_tanh

run=(ffn run model.safetensors --input x.npy --output y.npy)
expect 2 ffn run --input x.npy --output y.npy && says "no MODEL"
expect 2 ffn run model.safetensors --input x.npy && says "--output"
expect 2 ffn run model.safetensors more --input x.npy --output y.npy && says '"more"'
expect 2 "${run[@]}" --threads 0 && says "from 1 to 1024"
for wrong in x 1- -1 2-1 1,,2 1- '' all,1 99999999999; do
  expect 2 "${run[@]}" --layer "$wrong" && says layer
done
expect 2 "${run[@]}" --layer 0-10000 && says "10000"
expect 2 "${run[@]}" --activation gelo && says gelo gelu_tanh
expect 2 "${run[@]}" --norm-in rsm && says '--norm-in is "rsm"' "none, layer, rms or affine"
expect 2 "${run[@]}" --residual external && says "none, input or normed"
expect 2 "${run[@]}" --eps small && says '--eps is "small"'
expect 2 "${run[@]}" --eps ni=1e-6 && says '"ni"' "in, mid, branch or out"
expect 2 "${run[@]}" --alpha nan && says "--alpha" nan
expect 2 "${run[@]}" --tensor up && says "ROLE=NAME"
expect 2 "${run[@]}" --tensor upp=x && says '"upp"' "gate-bias" "residual-scale"
expect 2 "${run[@]}" --tensor up=x:tanh && says ":tanh"

# ---------------------------------------------------------------- status 1: the work failed
expect 1 ffn info missing.safetensors && says missing.safetensors
expect 1 ffn info missing.safetensors --json && says missing.safetensors
expect 1 ffn info other.safetensors && says other.safetensors gate_up_t
expect 1 ffn info other.safetensors --json && says gate_up_t
expect 1 ffn info model.safetensors --layer 3 && says model.safetensors "no layer 3" "0 to 2"
expect 1 ffn info model.safetensors --family no-such && says no-such
expect 1 ffn info model.safetensors --config none.json && says none.json
expect 1 "${run[@]}" && says "3 layers" "--layer"
expect 1 "${run[@]}" --layer 0-3 && says model.safetensors "no layer 3" "0 to 2"
expect 1 ffn run other.safetensors --input x.npy --output y.npy --layer all && says gate_up_t
expect 1 ffn run model.safetensors --layer 0 --input missing.npy --output y.npy && says missing.npy
expect 1 ffn run model.safetensors --layer 0 --input model.safetensors --output y.npy && says model.safetensors
expect 1 ffn run model.safetensors --layer 0 --input narrow.npy --output y.npy && says narrow.npy 23 24
expect 1 "${run[@]}" --layer 0 --tensor up=nothing && says nothing
expect 1 "${run[@]}" --layer 0 --tensor down= && says "layer 0" down
expect 1 "${run[@]}" --layer 0 --alpha 1 && says alpha
expect 1 ffn run other.safetensors --input x.npy --output y.npy --layer all --tensor up=gate_up:first && says "in place of all"
expect 1 ffn bench --d-model 8 --d-ff 8 --activation xielu && says xielu
nothing_else model.safetensors other.safetensors x.npy narrow.npy

# ---------------------------------------------------------------- where words stand
expect 0 ffn run --layer 0 --input x.npy model.safetensors --output y.npy
mv y.npy first.npy
expect 0 env POSIXLY_CORRECT=1 "$FFN" run model.safetensors --output=y.npy --in x.npy --layer=0
same first.npy y.npy "order of the words"
cp model.safetensors ./-model
expect 0 ffn run --layer 0 --input x.npy --output y.npy -- -model
same first.npy y.npy "a model called -model"

# ---------------------------------------------------------------- the three streams
(ffn info model.safetensors >/dev/full) 2>err.txt && fail "standard output is full, and the status 0"
says "standard output"
(ffn info model.safetensors >&-) 2>err.txt && fail "standard output is closed, and the status 0"
says "standard output"
ffn run model.safetensors --layer 0 --input x.npy --output y.npy 2>&- <&- || fail "a closed standard error"
same first.npy y.npy "a closed standard error"
ffn info missing.safetensors 2>&- && fail "missing, and no standard error"

# ---------------------------------------------------------------- help
expect 0 ffn --help
grep -q '^usage: ffn COMMAND' out.txt || fail "ffn --help"
expect 0 ffn --version
grep -q '^libffn [0-9]' out.txt || fail "ffn --version"
mkdir folder && cp model.safetensors folder/
for command in info run stats params bench; do
  expect 0 ffn $command --help
  grep -q "^usage: ffn $command" out.txt || fail "ffn $command --help"
  [ "$(grep -v '^[RA][a-z]*: ' out.txt | awk 'length > 140')" = "" ] || fail "ffn $command --help has long lines"
  cp out.txt help.txt
  expect 0 ffn help $command
  same out.txt help.txt "ffn help $command"
  # a line that ends in \ goes on in the next one
  sed -n '/^Examples:/,$p' help.txt | tail -n +2 | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' >examples.txt
  [ -s examples.txt ] || fail "ffn $command --help has no examples"
  while read -r program words; do
    [ "$program" = ffn ] || fail "an example that does not begin with ffn: $program $words"
    read -ra words <<<"$words"
    expect 0 ffn "${words[@]}"
    [ -s out.txt ] || fail "the example prints nothing: ffn ${words[*]}"
  done <examples.txt
done

# ---------------------------------------------------------------- figures
figure() { grep -qF -e "$1" out.txt || fail "ffn $2 does not say '$1': $(cat out.txt)"; }
expect 0 ffn params --d-model 512 --d-ff 2048 --layers 6
figure 2,099,712 "params (the original Transformer)"
figure 12,598,272 params
figure 66.7% params
expect 0 ffn params --d-model 4096 --d-ff 16384 --no-bias --multiple 256
figure 11,008 "params (LLaMA's width)"
figure 66.7% params
expect 0 ffn params --d-model 4096 --d-ff 11008 --gated --no-bias --layers 32
figure 135,266,304 "params (LLaMA's layer)"
figure 4,328,521,728 params
expect 0 ffn params --d-model 8 --d-ff 16 --d-out 4
figure "[4, 16]" params
expect 0 ffn params --d-model 536870912 --d-ff 536870912 --layers 3
figure 1,729,382,260,131,495,936 "params of the largest widths"
expect 1 ffn params --d-model 536870912 --d-ff 536870912 --layers 16 && says "2^63"
expect 0 ffn info model.safetensors
figure "3 feed-forward layers" info
figure 24-40-24 info
figure "silu gated" info
figure 33.3% info

# ---------------------------------------------------------------- JSON
if command -v python3 >/dev/null; then
  json() { # json EXPRESSION: true of the object in out.txt
    python3 -c "import json,sys; o=json.load(open('out.txt')); sys.exit(not ($1))" || fail "not so: $1; in $(cat out.txt)"
  }
  expect 0 ffn info model.safetensors --json --tensors
  json "o['family'] == 'llama' and o['layer_count'] == 3 and len(o['layers']) == 3 and len(o['tensors']) == 12"
  json "o['layers'][1]['prefix'] == 'model.layers.1.' and o['layers'][1]['norms']['in']['kind'] == 'rms' and o['layers'][1]['gated'] is True"
  json "o['layers'][2]['tensors']['down']['tensor'] == 'model.layers.2.mlp.down_proj.weight'"
  json "sum(l['parameters'] for l in o['layers']) == o['parameters'] and abs(sum(l['share'] for l in o['layers']) - 1) < 1e-6"
  ffn info other.safetensors --json >out.txt 2>err.txt && fail "no layers, and the status 0"
  json "o['layers'] == []"
  name=$(printf 'odd\377 "\n.safetensors')
  cp model.safetensors "$name"
  expect 0 ffn info "$name" --json
  json "o['layer_count'] == 3"
  expect 1 ffn run "$name" --layer 9 --input x.npy --output y.npy && says odd
  expect 0 ffn run model.safetensors --layer 0-2 --input x.npy --output y.npy --json --threads 1
  json "[l['layer'] for l in o['layers']] == [0, 1, 2] and o['tokens'] == 15 and o['threads'] == 1 and o['layers'][0]['seconds'] > 0"
  expect 0 ffn params --d-model 512 --d-ff 2048 --no-bias --json
  json "o['layer'] == 2097152 and abs(o['share_of_transformer_layer'] - 2/3) < 1e-8 and o['equal_gated_d_ff'] == 1366"
  expect 0 ffn bench --d-model 32 --d-ff 64 --tokens 1,8 --threads 1,2 --rounds 3 --json
  json "[(r['tokens'], r['threads']) for r in o['results']] == [(1, 1), (8, 1), (1, 2), (8, 2)]"
  json "all(0 < r['p10_seconds'] <= r['median_seconds'] <= r['p90_seconds'] and r['gflops'] > 0 for r in o['results'])"
fi
finish
