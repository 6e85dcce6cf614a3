#!/usr/bin/env bash
# ffn stats --tensors: the figures of tensors whose numbers are known, in every dtype; parts of tensors; and that NaN is not passed over.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
bytes() { printf '%b' "$(printf '\\x%s' "$@")"; } # bytes HEX...

# known FILE DTYPE ZEROS HEX...: a model of `up` [2, 2] and `down` [2, 2], eight numbers of ZEROS bytes that are 0 and two that are told
known() {
  local file=$1 dtype=$2 zeros=$3 size=$((4 * ($3 + 2))) numbers=() header i
  shift 3
  header="{\"up\":{\"dtype\":\"$dtype\",\"shape\":[2,2],\"data_offsets\":[0,$size]},"
  header+="\"down\":{\"dtype\":\"$dtype\",\"shape\":[2,2],\"data_offsets\":[$size,$((2 * size))]}}"
  while [ $# -gt 0 ]; do
    for ((i = 0; i < zeros; i++)); do numbers+=(00); done
    numbers+=("$1" "$2")
    shift 2
  done
  { bytes "$(printf %02x ${#header})" 00 00 00 00 00 00 00 && printf %s "$header" && bytes "${numbers[@]}"; } >"$file"
}
# 3 4 0 -0, 1 NaN -infinity 2
known F16 F16 0 00 42 00 44 00 00 00 80 00 3c 00 7e 00 fc 00 40
known BF16 BF16 0 40 40 80 40 00 00 00 80 80 3f c0 7f 80 ff 00 40
known F32 F32 2 40 40 80 40 00 00 00 80 80 3f c0 7f 80 ff 00 40
known F64 F64 6 08 40 10 40 00 00 00 80 f0 3f f8 7f f0 ff 00 40
known I16 I16 0 08 40 10 40 00 00 00 80 f0 3f f8 7f f0 ff 00 40
rows() { awk 'NR > 1 { $1 = $1; print }' out.txt; }
both=(--tensors --tensor up=up --tensor down=down)

# ---------------------------------------------------------------- known numbers
for dtype in F16 BF16 F32 F64; do
  cp $dtype model.safetensors
  expect 1 ffn stats model.safetensors "${both[@]}"
  says model.safetensors "1 of 2 tensors" down "with 2"
  [ "$(rows)" = "0 up up 4 5 4 2 50.0% 0 0.0%
0 down down 4 nan 2 0 0.0% 2 50.0% !" ] || fail "the table of $dtype: $(cat out.txt)"
  expect 0 ffn stats model.safetensors --tensors --tensor up=up --tensor down=up
  [ ! -s err.txt ] || fail "of finite numbers is said: $(cat err.txt)"
done
expect 1 ffn stats model.safetensors "${both[@]}" --json
says "1 of 2 tensors"
figures=$(tr -d ' \n' <out.txt | sed 's/.*"tensors"://')
[ "$figures" = '[{"layer":0,"role":"up","tensor":"up","layout":"out_in","part":"whole","count":4,"norm":5.0,"largest":4.0,"zeros":2,"non_finite":0},'\
'{"layer":0,"role":"down","tensor":"down","layout":"out_in","part":"whole","count":4,"norm":null,"largest":2.0,"zeros":0,"non_finite":2}]}' ] ||
  fail "the JSON: $figures"

# beside what the layer does on an array
helper random x.npy 1 3 2
expect 1 ffn stats model.safetensors "${both[@]}" --activation relu --input x.npy
says "1 of 2 tensors"
grep -q '^ *0 .* nan .* !$' out.txt || fail "the tensors are not told beside the units: $(cat out.txt)"
grep -qE '^ *0 +2-2-2 +relu +3 ' out.txt || fail "the units are not told beside the tensors: $(cat out.txt)"
expect 1 ffn stats model.safetensors "${both[@]}" --activation relu --input x.npy --json
{ grep -q '"non_finite": 2' out.txt && grep -q '"dead_units"' out.txt; } || fail "the JSON of both: $(cat out.txt)"

# ---------------------------------------------------------------- parts
half() { # half PART ROW: of a stack of two experts, whose matrices are [in, out] = [1, 2]
  expect 0 ffn stats model.safetensors --tensors --experts 2 --top-k 1 --tensor "up=up:in_out:$1" --tensor down=up
  [ "$(rows | head -n 1)" = "0 up up $2" ] || fail "$1 of a stack: $(cat out.txt)"
}
half first "2 3 3 1 50.0% 0 0.0%"
half second "2 4 4 1 50.0% 0 0.0%"
half even "2 3 3 1 50.0% 0 0.0%"
half odd "2 4 4 1 50.0% 0 0.0%"

helper model layers.safetensors
helper parts parts.safetensors layers.safetensors
figures() { rows | awk '{ print $2, $4, $5, $6, $7, $9 }'; }
expect 0 ffn stats layers.safetensors --layer 0 --tensors
whole=$(figures)
[ "$(wc -l <<<"$whole")" = 4 ] || fail "the tensors of a layer: $(cat out.txt)"
for parts in gate_up:first,gate_up:second mixed:even:even,mixed:even:odd gate_up_t:in_out:first,gate_up_t:in_out:second; do
  expect 0 ffn stats parts.safetensors --tensors --tensor "gate=${parts%,*}" --tensor "up=${parts#*,}" --tensor down=block.0.down_t:in_out --tensor norm-in=norm
  [ "$(figures)" = "$whole" ] || fail "parts $parts: $(cat out.txt), not $whole"
done
expect 1 ffn stats parts.safetensors --tensors --tensor up=half:first --tensor down=norm && says half "no half"

# ---------------------------------------------------------------- which layers
expect 0 ffn stats layers.safetensors --tensors
[ "$(rows | awk '{ print $1 }' | xargs)" = "0 0 0 0 1 1 1 1 2 2 2 2" ] || fail "the layers: $(cat out.txt)"
expect 0 ffn stats layers.safetensors --layers 2,0,2 --tensors
[ "$(rows | awk '{ print $1 }' | xargs)" = "2 2 2 2 0 0 0 0" ] || fail "a layer that is named twice: $(cat out.txt)"
helper experts experts.safetensors layers.safetensors
expect 0 ffn stats experts.safetensors --layer 1 --tensors
[ "$(rows | grep -cF 'block_sparse_moe.experts.3.')" = 3 ] || fail "the tensors of an expert: $(cat out.txt)"

# ---------------------------------------------------------------- what is wrong
expect 2 ffn stats layers.safetensors && says --input --tensors
expect 2 ffn stats layers.safetensors --tensors --each && says --each --input
expect 2 ffn stats layers.safetensors --tensors --plot p.svg && says --plot --input
expect 1 ffn stats model.safetensors --tensors && says model.safetensors
expect 1 ffn stats layers.safetensors --tensors --tensor up=missing && says missing
cp I16 model.safetensors
expect 1 ffn stats model.safetensors "${both[@]}" && says up I16
[ ! -s out.txt ] || fail "something is told of tensors that cannot be read: $(cat out.txt)"
finish
