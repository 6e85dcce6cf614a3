#!/usr/bin/env bash
# docs/ffn.md ends with the help texts as the program prints them. UPDATE=1 rewrites them.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
page=$source_folder/docs/ffn.md
sed '/^## Help texts/,$d' "$page" >expected.md
{
  printf '## Help texts\n\n<!-- tests/cli/docs.sh holds these against the program; UPDATE=1 rewrites them. -->\n'
  for command in "" info run stats params bench; do
    printf '\n```text\n$ ffn %s--help\n' "${command:+$command }"
    "$FFN" ${command:+"$command"} --help
    printf '```\n'
  done
} >>expected.md
[ "${UPDATE-}" != 1 ] || cp expected.md "$page"
diff "$page" expected.md || fail "docs/ffn.md has other help texts than the program (>): UPDATE=1 tests/cli/docs.sh rewrites them"
finish
