#!/usr/bin/env bash
# Completion offers what the help texts list.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
scripts=$source_folder/src/cli/completion
bash -n "$scripts/ffn.bash" || fail "bash cannot read ffn.bash"
! command -v zsh >/dev/null || zsh -n "$scripts/_ffn" || fail "zsh cannot read _ffn"
! command -v fish >/dev/null || fish --no-execute "$scripts/ffn.fish" || fail "fish cannot read ffn.fish"

# shellcheck disable=SC1091
. "$scripts/ffn.bash"
complete -p ffn | grep -q -- '-F _ffn' || fail "nothing completes ffn"

# offers WORD...: what is offered for the last of the words, on one line
offers() {
  COMP_WORDS=("$FFN" "$@")
  COMP_CWORD=$#
  COMPREPLY=()
  _ffn
  echo "${COMPREPLY[*]}"
}
check() { # check EXPECTED WORD...
  local expected=$1 got
  shift
  got=$(offers "$@")
  [ "$got" = "$expected" ] || fail "'$*' is completed with '$got', not with '$expected'"
}
check "info run stats params bench help --help --version" ""
check "params" p
check "info run stats params bench" help ""
for command in info run stats params bench; do
  options=$("$FFN" $command --help | sed -nE 's/^  (--[a-z-]+).*/\1/p' | tr '\n' ' ')
  [ -n "$options" ] || fail "ffn $command --help lists no options"
  check "${options% }" $command -
done
check "--layer --layers" run m --lay
check "all" run m --layer ""
check "" info m --layer ""
check "none layer rms affine" run m --norm-out ""
check "none input normed" run m --residual ""
check "gelu gelu_tanh gelu_10" run m --activation gel
check "silu" bench --activation sil
check "norm-in= norm-in-bias=" run m --tensor norm-in
check "" run m --eps ""
check "" nonsense -
touch model.safetensors x.npy
check "model.safetensors" run mod
check "x.npy" run model.safetensors --input x
check "model.safetensors x.npy" run ""
finish
