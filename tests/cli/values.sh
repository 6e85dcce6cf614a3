#!/usr/bin/env bash
# The trained and the published layers of ../shared/data give their expected values through `ffn run`, on one thread and on two. CMake runs this
# at every ISA level (FFN_MAX_ISA). FFN_TEST_QUICK=1: on two threads alone.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
[ -d "$data" ] || exit 77
thread_counts=(1 2)
[ -z "${FFN_TEST_QUICK-}" ] || thread_counts=(2)

# check MODEL EXPECTED-FILE INPUT OUTPUT OPTION...: the tensor OUTPUT comes out of the tensor INPUT
check() {
  local model=$1 expected=$data/$2-expected.safetensors input=$3 output=$4 threads
  shift 4
  expect 0 helper extract "$expected" "$input" x.npy
  expect 0 helper extract "$expected" "$output" expected.npy
  for threads in "${thread_counts[@]}"; do
    rm -f y.npy
    expect 0 ffn run "$data/$model" --input x.npy --output y.npy --threads "$threads" --quiet "$@"
    near y.npy expected.npy 2e-6 "$model $* on $threads threads: $output"
  done
}

stories_config=(--config "$data/stories260k-config.json")
for layer in 0 1 2 3 4; do
  check stories260k-ffn.safetensors stories260k input "layers.$layer.output" "${stories_config[@]}" --layer "0-$layer"
  check stories260k-ffn.safetensors stories260k pieces.input "pieces.layers.$layer.output" "${stories_config[@]}" --layers "0-$layer"
  check tiny-gpt2-ffn.safetensors tiny-gpt2 input "layers.$layer.output" --layer "0-$layer"
done
check stories260k-ffn.safetensors stories260k pieces.input pieces.layers.4.output "${stories_config[@]}" --layer all
check stories260k-layer0-bf16.safetensors stories260k-layer0-bf16 input output "${stories_config[@]}"
check stories260k-layer2-f16.safetensors stories260k-layer2-f16 input output "${stories_config[@]}"
for model in stories260k-sharded stories260k-sharded/model.safetensors.index.json; do
  check $model stories260k pieces.input pieces.layers.0.output "${stories_config[@]}" --layer 0
  check $model stories260k pieces.input pieces.layers.1.output "${stories_config[@]}" --layer all
done
check minilm-layer0.safetensors minilm model.layer.0.ffn_input model.layer.0.ffn_output
check minilm-layer0.safetensors minilm embeddings chain.layer.0.output --layer 0
for step in 0 1 2 3 4 5 6 7; do # trained with the exact gelu, which its config.json says and which is not ALBERT's default
  check rxnmapper-albert-ffn.safetensors rxnmapper-albert "step.$step.ffn_input" "step.$step.ffn_output" --activation gelu
done
check tiny-t5-ffn.safetensors tiny-t5 input layers.0.output --layer 0
check tiny-t5-ffn.safetensors tiny-t5 input layers.1.output --layer all
check stories260k-moe-mixtral.safetensors stories260k-moe-mixtral input output --config "$data/stories260k-moe-mixtral-config.json"
check stories260k-moe-mixtral.safetensors stories260k-moe-mixtral input output # its names are Mixtral's alone

# of no known family: by hand
check recall-relu-ffn.safetensors recall-relu input output --activation relu --tensor up=bg.mlp.c_fc.W:in_out --tensor up-bias=bg.mlp.c_fc.b \
  --tensor down=bg.mlp.c_proj.W:in_out --tensor down-bias=bg.mlp.c_proj.b --norm-in layer --tensor norm-in=bg.ln2.w \
  --tensor norm-in-bias=bg.ln2.b --residual input
for layer in 0 3 7; do
  check rwkv5-channelmix.safetensors rwkv5-channelmix "layers.$layer.xk" "layers.$layer.kv" --layer "$layer" --activation relu2 \
    --tensor 'up=blocks.{i}.ffn.key.weight' --tensor 'down=blocks.{i}.ffn.value.weight'
done
finish
