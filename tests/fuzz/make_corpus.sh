#!/usr/bin/env bash
# Writes the seeds of the fuzzers, which are committed, to corpus/: one small file for each branch of a format. Run it after a change here.
set -euo pipefail
cd "$(dirname "$0")"
rm -rf corpus
mkdir -p corpus/{safetensors,npy,config}

bytes() { # bytes COUNT: so many bytes of data
  local i
  for ((i = 0; i < $1; i++)); do printf '%b' "\\x$(printf %02x $((i * 37 % 256)))"; done
}
little_endian() { # little_endian NUMBER BYTES
  local i
  for ((i = 0; i < $2; i++)); do printf '%b' "\\x$(printf %02x $(($1 >> (8 * i) & 255)))"; done
}
safetensors() { # safetensors NAME HEADER DATA-BYTES
  { little_endian ${#2} 8; printf '%s' "$2"; bytes "$3"; } >"corpus/safetensors/$1"
}
npy() { # npy NAME VERSION DICTIONARY DATA-BYTES
  { printf '\x93NUMPY'; little_endian "$2" 1; printf '\0'; little_endian ${#3} $(($2 == 1 ? 2 : 4)); printf '%s' "$3"; bytes "$4"; } >"corpus/npy/$1"
}
config() { # config NAME MODEL JSON
  { little_endian "$2" 1; printf '%s' "$3"; } >"corpus/config/$1"
}

safetensors one '{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}} ' 16
safetensors empty '{}' 0
safetensors metadata '{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}' 2
safetensors narrow '{"h":{"dtype":"F16","shape":[3],"data_offsets":[8,14]},"d":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}' 14
safetensors zero '{"a":{"dtype":"F32","shape":[0,5],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
safetensors bits '{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"v":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[2,5]}}' 5
safetensors names '{"\u00e9\n\"\\/":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"\ud83d\ude00":{"dtype":"BOOL","shape":[1],"data_offsets":[1,2]}}' 2
safetensors extra '{"w":{"x":[[1.5e3,null,true]],"data_offsets":[0,8],"shape":[1,1,1,1,1],"dtype":"C64"}}' 8

npy version1 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
" 24
npy version2 2 "{'descr': '>f8', 'fortran_order': False, 'shape': (3,), }
" 24
npy version3 3 "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3, 2), }
" 24
npy fortran 1 "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }
" 48
npy scalar 1 "{'descr': '=f4', 'fortran_order': False, 'shape': ()}" 4
npy empty 1 "{'descr': '|f2', 'fortran_order': True, 'shape': (0, 7)}" 0
npy python2 1 "{\"shape\":(2L,1L),\"fortran_order\":False,\"descr\":\"<f4\"}   " 8
npy records 1 "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}" 4

config llama 0 '{"model_type":"llama","hidden_act":"silu","rms_norm_eps":1e-05,"hidden_size":4,"intermediate_size":8,"num_hidden_layers":1}'
config gemma 0 '{"model_type":"gemma","hidden_act":"gelu","hidden_activation":null,"rms_norm_eps":1e-06}'
config gemma2 1 '{"model_type":"gemma2","hidden_activation":"gelu_pytorch_tanh","rms_norm_eps":1e-06}'
config gemma3 1 '{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_activation":"gelu_pytorch_tanh"},"vision_config":{}}'
config granite 0 '{"model_type":"granite","residual_multiplier":0.22,"hidden_act":"silu","mlp_bias":false}'
config bert 2 '{"model_type":"bert","hidden_act":"gelu","layer_norm_eps":1e-12}'
config gpt2 3 '{"model_type":"gpt2","activation_function":"gelu_new","layer_norm_epsilon":1e-05,"n_inner":null}'
config t5 4 '{"model_type":"t5","feed_forward_proj":"gated-gelu","dense_act_fn":"gelu_new","layer_norm_epsilon":1e-06}'
config phi3 5 '{"model_type":"phi3","hidden_act":"silu","rms_norm_eps":1e-05}'
config opt 6 '{"model_type":"opt","activation_function":"relu","do_layer_norm_before":true}'
config bart 6 '{"model_type":"bart","activation_function":"gelu","normalize_before":false}'
config dinov2 7 '{"model_type":"dinov2","hidden_act":"gelu","layer_norm_eps":1e-06,"use_swiglu_ffn":false,"layerscale_value":1.0}'
config unknown 8 '{"model_type":"x","architectures":["XForCausalLM"]}'
config none 0 '{}'
config mixtral 9 '{"model_type":"mixtral","num_local_experts":2,"num_experts_per_tok":1,"hidden_act":"silu","rms_norm_eps":1e-05}'
config minimax 9 '{"model_type":"minimax","mlp_alpha_factor":1.5,"mlp_beta_factor":0.5,"num_experts_per_tok":[2,1]}'
config deepseek_v3 10 '{"model_type":"deepseek_v3","n_routed_experts":2,"num_experts_per_tok":1,"n_group":2,"topk_group":1,"scoring_func":"sigmoid","norm_topk_prob":true,"routed_scaling_factor":2.5}'
config deepseek_v2 10 '{"model_type":"deepseek_v2","num_experts_per_tok":1,"topk_method":"group_limited_greedy","n_group":2,"topk_group":1,"routed_scaling_factor":16.0}'
config gpt_oss 11 '{"model_type":"gpt_oss","num_local_experts":2,"num_experts_per_tok":2,"swiglu_limit":7.0}'
config dbrx 12 '{"model_type":"dbrx","ffn_config":{"moe_num_experts":2,"moe_top_k":2,"moe_normalize_expert_weights":1,"ffn_act_fn":{"name":"silu"}}}'
config switch 13 '{"model_type":"switch_transformers","num_experts":2,"expert_capacity":64,"dense_act_fn":"relu"}'
