#!/usr/bin/env bash
# Layers described by options: each way to say a thing against another way to say the same.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
helper model model.safetensors
helper parts other.safetensors model.safetensors
helper random x.npy 1 3 5 24

# run OUTPUT OPTION...: layer 0 of the model; hand OUTPUT OPTION...: a layer of the file without recognised ones
run() { expect 0 ffn run model.safetensors --layer 0 --quiet --threads 1 --input x.npy --output "$@"; }
hand() { expect 0 ffn run other.safetensors --quiet --threads 1 --input x.npy --output "$@"; }
different() { ! cmp -s "$1" "$2" || fail "$1 and $2 are the same: $3"; }

run whole.npy

# ---------------------------------------------------------------- tensors
rest=(--activation silu --norm-in rms --tensor norm-in=norm --residual input)
hand y.npy --tensor gate=gate_up:first --tensor up=gate_up:second --tensor down=block.0.down_t:in_out "${rest[@]}"
same y.npy whole.npy "gate and up in one tensor, down [in, out]"
hand y.npy --tensor gate=gate_up_t:in_out:first --tensor up=gate_up_t:second:in_out --tensor down=block.0.down_t:in_out "${rest[@]}"
same y.npy whole.npy "both in one [in, out] tensor"
hand y.npy --tensor gate=mixed:even:even --tensor up=mixed:even:odd --tensor 'down=block.{i}.down_t:in_out' "${rest[@]}"
same y.npy whole.npy "interleaved, a name with a colon, the layer's number"
hand z.npy --tensor gate=mixed:even:odd --tensor up=mixed:even:even --tensor 'down=block.{i}.down_t:in_out' "${rest[@]}"
different z.npy whole.npy "gate and up exchanged"
run y.npy --tensor up=model.layers.1.mlp.up_proj.weight
different y.npy whole.npy "another layer's tensor"
run y.npy --by-hand --tensor gate=model.layers.0.mlp.gate_proj.weight --tensor 'up=model.layers.{i}.mlp.up_proj.weight' \
  --tensor 'down=model.layers.{i}.mlp.down_proj.weight' --activation silu --norm-in rms \
  --tensor norm-in=model.layers.0.post_attention_layernorm.weight --residual input
same y.npy whole.npy "by hand in a model with recognised layers"
run y.npy --tensor gate=
run z.npy --by-hand --tensor up=model.layers.0.mlp.up_proj.weight --tensor down=model.layers.0.mlp.down_proj.weight --activation silu \
  --norm-in rms --tensor norm-in=model.layers.0.post_attention_layernorm.weight --residual input
same y.npy z.npy "without the gate"

# ---------------------------------------------------------------- norms
run y.npy --eps 1e-6
same y.npy whole.npy "the family's epsilon"
run y.npy --eps 1 --eps in=1e-6
same y.npy whole.npy "one slot's epsilon against all slots'"
run y.npy --eps in=1
different y.npy whole.npy "another epsilon"
run y.npy --norm-offset in=0
same y.npy whole.npy "the family's offset"
run y.npy --norm-offset 1
different y.npy whole.npy "another offset"
run y.npy --norm-in none
run z.npy --norm-in none --norm-branch none --tensor norm-in=
same y.npy z.npy "no norm takes its tensors along"
expect 1 ffn run model.safetensors --layer 0 --norm-in none --tensor norm-in=model.layers.0.post_attention_layernorm.weight --input x.npy \
  --output z.npy && says norm
run y.npy --norm-in affine --tensor norm-in=
run z.npy --norm-in none
same y.npy z.npy "an affine norm without tensors"
run y.npy --norm-out layer --norm-mid rms
different y.npy whole.npy "more norms"

# ---------------------------------------------------------------- residual, scales, branch
run none.npy --residual none
helper subtract whole.npy x.npy y.npy
near y.npy none.npy 1e-5 "the residual is the input"
run y.npy --residual-scale 0
near y.npy none.npy 1e-6 "a residual of factor 0"
run y.npy --residual none --branch-scale -2
helper scale none.npy -2 z.npy
near y.npy z.npy 1e-6 "a factor on the branch"
run branch.npy --branch
run y.npy --norm-in none --residual none
same y.npy branch.npy "the branch alone has neither norm nor residual"
run y.npy --branch --branch-scale 3
same y.npy branch.npy "nor a scale"
run y.npy --residual normed
different y.npy whole.npy "the normed residual"
hand y.npy --tensor gate=gate_up:first --tensor up=gate_up:second --tensor down=block.0.down_t:in_out "${rest[@]}" \
  --tensor branch-scale=half:tanh
run z.npy --branch-scale 0.5
near y.npy z.npy 1e-6 "a tanh scale"

# ---------------------------------------------------------------- activation
run y.npy --activation swish --beta 1
near y.npy whole.npy 1e-6 "silu is swish of beta 1"
run y.npy --activation leaky_relu --alpha 1
run z.npy --activation identity
near y.npy z.npy 1e-6 "leaky_relu of alpha 1 is the identity"
run y.npy --up-limit 1000 --gate-max 1000
same y.npy whole.npy "clamps that are too far away"
run y.npy --up-limit 0.01
different y.npy whole.npy "a clamp"
run y.npy --up-offset 1
different y.npy whole.npy "an offset"
expect 2 ffn run model.safetensors --input x.npy --output y.npy --activation ''
listed=$(ffn run --help | sed -nE 's/^Activations: (.*)\.$/\1/p')
says "${listed:?}"
expect 2 ffn run model.safetensors --input x.npy --output y.npy --tensor x=y
listed=$(ffn run --help | sed -nE 's/^Roles: (.*)\.$/\1/p')
says "${listed:?}"

# ---------------------------------------------------------------- chains
chain() { expect 0 ffn run model.safetensors --quiet --threads 1 --input "$2" --output "$1" --layer "$3"; }
chain a.npy x.npy 0
chain b.npy a.npy 1
chain c.npy b.npy 2
chain y.npy x.npy all
same y.npy c.npy "all layers"
chain y.npy x.npy 0-2
same y.npy c.npy "a range of layers"
chain y.npy x.npy 0,1,2-2
same y.npy c.npy "a list of layers"
chain d.npy c.npy 0
chain y.npy x.npy 0-2,0
same y.npy d.npy "a layer that comes twice"
chain y.npy x.npy 2-2,0
different y.npy c.npy "another order"
finish
