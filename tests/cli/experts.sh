#!/usr/bin/env bash
# Mixtures of experts: what `ffn info` tells of them, and that experts which are all the same make the layer that each of them is.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
helper model dense.safetensors
helper experts model.safetensors dense.safetensors
helper random x.npy 1 3 5 24
run() { expect 0 ffn run model.safetensors --layer 1 --quiet --threads 1 --input x.npy --output "$@"; }
told() { grep -qE -e "$1" out.txt || fail "$2 is not told: $(cat out.txt)"; } # told REGEX WHAT

# ---------------------------------------------------------------- what is told
expect 0 ffn info model.safetensors
told '^model.safetensors: mixtral, 2 feed-forward layers' "the family of the experts"
told '^8,784 parameters are active for a token \(60\.4%\)' "the active parameters"
told '^ *0 +llama .* silu gated  +in rms' "a dense layer beside it"
told '^ *1 +mixtral .* 2 of 4  +softmax, normalised .* 11,640 +5,880 ' "the experts, the router and their parameters"
expect 0 ffn info model.safetensors --layer 1
told '^down +model\.layers\.1\.block_sparse_moe\.experts\.\{e\}\.w2\.weight +\[24, 40\] F32 +4 experts' "the tensors of the experts"
told '^router +model\.layers\.1\.block_sparse_moe\.gate\.weight' "the router's tensor"
expect 0 ffn info model.safetensors --layer 1 --json
told '"top_k": 2' "top_k"
told '"active_parameters": 5880' "the active parameters"
told '"tensor": "model\.layers\.1\.block_sparse_moe\.experts\.\{e\}\.w1\.weight"' "the gates"
expect 0 ffn info dense.safetensors
! grep -q experts out.txt || fail "experts are told of where there are none: $(cat out.txt)"

# ---------------------------------------------------------------- what is computed
expect 0 ffn run dense.safetensors --layer 0 --quiet --threads 1 --input x.npy --output dense.npy --eps 1e-5
run y.npy
near y.npy dense.npy 1e-6 "experts that are the same"
for top_k in 1 3 4; do
  run y.npy --top-k $top_k
  near y.npy dense.npy 1e-6 "$top_k experts that are the same"
done
expect 0 ffn run dense.safetensors --layer 0 --quiet --threads 1 --input x.npy --output y.npy --branch
expect 0 ffn run model.safetensors --layer 1 --quiet --threads 1 --input x.npy --output z.npy --branch
near z.npy y.npy 1e-6 "the branch alone"
expect 0 ffn run model.safetensors --layer all --quiet --threads 2 --input x.npy --output y.npy --eps 1e-5
expect 0 ffn run dense.safetensors --layer 0,0 --quiet --threads 2 --input x.npy --output z.npy --eps 1e-5
near y.npy z.npy 1e-6 "a dense layer and experts in a chain"
expect 0 ffn run model.safetensors --layer all --input x.npy --output y.npy --json
told '"experts": 4' "the experts of a run"
loads=$(tr -d ' \n' <out.txt | grep -oE '"tokens_per_expert":\[[0-9,]*\]' | tr -dc '0-9,')
[ $((${loads//,/+})) = 30 ] || fail "15 tokens do not go to 2 experts each: $loads"
told '"dropped": 0' "that nothing is dropped"

expect 0 ffn run model.safetensors --layer all --input x.npy --output y.npy --load
told '^layer 1: 15 tokens, each to 2 of 4 experts' "the load"
told '^ *3 +[0-9]+ +[0-9.]+% +#*$' "the load of an expert"
told '^entropy 1\.[0-9]{3} of at most 1\.386 nats, .* 0 choices dropped, 0 tokens without an expert, 0 idle experts' "the entropy of the load"
[ "$(grep -c '^layer ' out.txt)" = 2 ] || fail "a dense layer has a load: $(cat out.txt)" # the table's heading, and layer 1

# ---------------------------------------------------------------- ffn stats
expect 0 ffn stats model.safetensors --input x.npy
told '^ *0 +24-40-24 +silu gated +15 ' "the hidden units of the dense layer"
told '^layer 1: 15 tokens, each to 2 of 4 experts' "the load"
told '^entropy 1\.[0-9]{3} of at most 1\.386 nats' "the entropy"
told '^ *1 +24-40-24 +silu gated +30 .* [0-9]+ +[0-9.]+%$' "the hidden units of the mixture, those unseen last"
told '^ *expert +tokens +share +density +dead units +unseen units *$' "the hidden units by expert"
told '^ *3 +[0-9]+ +[0-9.]+% +([0-9.]+%|-) +([0-9]+|-) +(0|40) +#*$' "the hidden units of an expert"
expect 0 ffn stats model.safetensors --layer 1 --input x.npy --capacity 1
told '[1-9][0-9]* choices? dropped' "what is dropped"
told '^ *1 +24-40-24 +silu gated +([0-9]|1[0-2]) ' "that a unit has no position where its expert dropped the token"
expect 0 ffn stats dense.safetensors --input x.npy
! grep -q unseen out.txt || fail "units can be unseen where there are no experts: $(cat out.txt)"

# experts that are the same and have all tokens do what each of them does as a layer
values() { sed -nE "s/^ *\"$1\": ([^,]*),?$/\1/p" out.txt | tr '\n' ' '; } # values NAME: everywhere in the JSON
expect 0 ffn stats dense.safetensors --layer 0 --input x.npy --eps 1e-5 --json
density=$(values density) dead=$(values dead_units)
times() { for _ in $(seq "$1"); do printf '%s' "$2"; done; }
shared=(--tensor shared-up=model.layers.0.mlp.up_proj.weight --tensor shared-gate=model.layers.0.mlp.gate_proj.weight
  --tensor shared-down=model.layers.0.mlp.down_proj.weight)
expect 0 ffn stats model.safetensors --layer 1 --input x.npy --top-k 4 "${shared[@]}" --json
[ "$(values density)" = "$(times 6 "$density")" ] || fail "densities of experts, shared ones and all: $(values density), of a layer $density"
[ "$(values dead_units)" = "$((5 * dead)) $(times 5 "$dead")" ] || fail "dead units: $(values dead_units), of a layer $dead"
[ "$(values positions)" = "75 15 15 15 15 15 " ] || fail "positions: $(values positions)"
[ "$(values units)" = "200 " ] || fail "units: $(values units)"
expect 0 ffn stats model.safetensors --layer 1 --input x.npy --top-k 4 "${shared[@]}"
told '^ *shared +15 +- +[0-9.]+% +[0-9]+ +0 *$' "the hidden units of the shared experts"

# one token: a unit of its expert is above 0 or dead, the others are unseen
helper slice x.npy 0 1 row.npy
expect 0 ffn stats model.safetensors --layer 1 --input row.npy --top-k 1 --activation relu --json
[ $(($(values positive) + $(values dead_units | cut -d ' ' -f 1))) = 40 ] || fail "units of one token: $(cat out.txt)"
[ "$(values unseen_units | tr ' ' '\n' | sort -n | tr '\n' ' ' | sed 's/^ *//')" = "0 40 40 40 120 " ] || fail "unseen units of one token: $(values unseen_units)"
[ "$(values density | tr ' ' '\n' | grep -c null)" = 3 ] || fail "densities of idle experts: $(values density)"
expect 0 ffn stats model.safetensors --layer 1 --input row.npy --top-k 1 --activation relu
[ "$(grep -cE '^ *[0-3] +0 +0\.0% +- +- +40 *$' out.txt)" = 3 ] || fail "the table of idle experts: $(cat out.txt)"

expect 0 ffn stats model.safetensors --input x.npy --json
told '"tokens_per_expert"' "the load"
mkdir bin
# shellcheck disable=SC2016 # the tool's own
printf '%s\n' '#!/bin/sh' 'case $2 in "import matplotlib") exit 0 ;; esac' 'exec /bin/cat' >bin/python3
chmod +x bin/python3
helper random none.npy 1 0 24
for input in x row none; do
  expect 0 env PATH="$work/bin:/usr/bin:/bin" "$FFN" stats model.safetensors --input $input.npy --layer 1 --top-k 1 --plot p.svg
  [ "$(awk '{ print NF, /^[ld]/ ? $1 : "" }' p.svg | xargs)" = "44 6 load 6 density" ] || fail "the lines of a plot: $(cat p.svg)"
done
[ "$(tail -n 1 p.svg)" = "density 1 nan nan nan nan" ] || fail "the density of experts without tokens: $(cat p.svg)"
rm -r bin
if python3 -c 'import matplotlib' 2>/dev/null || command -v gnuplot >/dev/null; then
  for layers in all 0 1; do
    expect 0 ffn stats model.safetensors --layer $layers --input x.npy --plot load.svg
    grep -q '<svg' load.svg || fail "no picture of the layers $layers"
    [ ! -s err.txt ] || fail "drawing the layers $layers says $(cat err.txt)"
  done
  for input in row none; do
    expect 0 ffn stats model.safetensors --layer 1 --input $input.npy --top-k 1 --plot load.svg
  done
fi

# ---------------------------------------------------------------- by hand
helper stacks stacks.safetensors model.safetensors
hand=(--experts 4 --top-k 2 --normalise sum --activation silu --norm-in rms --eps 1e-5 --residual input)
prefix='model.layers.{i}.'
run whole.npy
run y.npy --by-hand "${hand[@]}" --tensor "router=${prefix}block_sparse_moe.gate.weight" --tensor "norm-in=${prefix}post_attention_layernorm.weight" \
  --tensor "up=${prefix}block_sparse_moe.experts.{e}.w3.weight" --tensor "gate=${prefix}block_sparse_moe.experts.{e}.w1.weight" \
  --tensor "down=${prefix}block_sparse_moe.experts.{e}.w2.weight"
same y.npy whole.npy "the tensors of experts by hand"
stack() { expect 0 ffn run stacks.safetensors --quiet --threads 1 --input x.npy --output "$@" --tensor up=all.w3 --tensor gate=all.w1 \
  --tensor down=all.w2 --tensor router=route --tensor norm-in=norm; }
stack y.npy "${hand[@]}"
same y.npy whole.npy "stacks by hand"
stack y.npy "${hand[@]}" --score sigmoid
near y.npy dense.npy 1e-6 "experts that are the same, by another score"
stack y.npy "${hand[@]}" --normalise none
! cmp -s y.npy whole.npy || fail "weights that are not normalised make no difference"
run z.npy --normalise none
same y.npy z.npy "weights of a family's layer that are not normalised"

# ---------------------------------------------------------------- capacity: of each sequence
run limited.npy --capacity 1
! cmp -s limited.npy dense.npy || fail "a capacity of one token drops nothing"
expect 0 ffn run model.safetensors --layer 1 --input x.npy --output y.npy --capacity 1 --json
told '"dropped": [1-9]' "what is dropped"
for first in 0 5 10; do
  helper slice limited.npy $first 5 expected.npy
  helper slice x.npy $first 5 one.npy
  expect 0 ffn run model.safetensors --layer 1 --quiet --threads 1 --input one.npy --output y.npy --capacity 1
  same y.npy expected.npy "a sequence beside others"
done
run y.npy --capacity 5
near y.npy dense.npy 1e-6 "a capacity of all tokens"
run y.npy --capacity 1 --capacity 0
near y.npy dense.npy 1e-6 "no capacity"
helper random long.npy 3 2 3000 24 # blocks of rows are whole sequences
expect 0 ffn run model.safetensors --layer 1 --threads 1 --input long.npy --output y.npy --capacity 700 --json
told '"block_rows": 3000' "the rows of a block"
helper slice long.npy 3000 3000 one.npy
helper slice y.npy 3000 3000 expected.npy
expect 0 ffn run model.safetensors --layer 1 --quiet --threads 1 --input one.npy --output y.npy --capacity 700
same y.npy expected.npy "a sequence in a block of its own"

# ---------------------------------------------------------------- what cannot be
run_wrong() { expect 1 ffn run model.safetensors --layer "$1" --input x.npy --output y.npy "${@:2}"; }
run_wrong 1 --top-k 5 && says "top_k is 5" 4
run_wrong 0 --top-k 1 && says "layer 0 has no experts"
run_wrong 1 --tensor up=model.layers.0.mlp.up_proj.weight && says experts.0.w2.weight "d_ff 10"
run_wrong 1 --tensor 'up=model.layers.{e}.mlp.up_proj.weight' && says model.layers.1.mlp.up_proj.weight
expect 1 ffn run stacks.safetensors --experts 4 --activation silu --tensor up=all.w3 --tensor down=all.w2 --input x.npy --output y.npy && says top-k
expect 2 ffn run model.safetensors --layer 1 --input x.npy --output y.npy --score tanh && says softmax
expect 2 ffn run model.safetensors --layer 1 --input x.npy --output y.npy --normalise power && says "none or sum"
run_wrong 1 --tensor router= && says router
expect 2 ffn run model.safetensors --layer 1 --input x.npy --output y.npy --top-k 0 && says top-k
expect 2 ffn run model.safetensors --layer 1 --input x.npy --output y.npy --capacity -1 && says capacity
finish
