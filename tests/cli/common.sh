# shellcheck shell=bash
# What the tests of the ffn program share. A test sources this file; $FFN is the program, $HELPER cli_helper (helper.c), $LAUNCHER a command to
# run both under, such as valgrind. The test's folder is empty and goes away with it.
set -uo pipefail
: "${FFN:?the program}" "${HELPER:?cli_helper}"
read -ra launcher <<<"${LAUNCHER-}"
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # used by the tests
data=$source_folder/../shared/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

# Under valgrind a call takes seconds: with FFN_TEST_QUICK every fifth call is made there, and the others without; all at a level that valgrind has,
# or their bits would differ.
case ${FFN_TEST_QUICK-}${LAUNCHER-} in
1valgrind*) export FFN_MAX_ISA=${FFN_MAX_ISA-avx2} ;;
esac
calls=0
ffn() {
  calls=$((calls + 1))
  case ${FFN_TEST_QUICK-}${LAUNCHER-} in
  1valgrind*) [ $((calls % 5)) = 1 ] || { "$FFN" "$@"; return; } ;;
  esac
  ${launcher[@]+"${launcher[@]}"} "$FFN" "$@"
}
helper() { "$HELPER" "$@"; }

fail() {
  echo "FAILED: $*"
  failed=1
}

# expect STATUS COMMAND...: runs the command with its output in out.txt and err.txt
expect() {
  local wanted=$1 status=0
  shift
  "$@" >out.txt 2>err.txt || status=$?
  [ "$status" = "$wanted" ] || fail "$* exits with $status, not $wanted: $(head -c 2000 err.txt)"
}

# says WORD...: err.txt is one line of the program's that has each of the words
says() {
  local word
  [ "$(wc -l <err.txt)" = 1 ] || fail "not one line on standard error: $(cat err.txt)"
  [ "$(head -c 5 err.txt)" = "ffn: " ] || fail "the error does not begin with 'ffn: ': $(cat err.txt)"
  for word in "$@"; do
    grep -qF -e "$word" err.txt || fail "the error does not say '$word': $(cat err.txt)"
  done
}

same() { cmp -s "$1" "$2" || fail "$1 and $2 differ: $3"; } # same FILE FILE WHAT

# near GOT EXPECTED TOLERANCE WHAT
near() { helper compare "$1" "$2" "$3" >/dev/null || fail "$4"; }

# nothing_else FILE...: these are all files in the folder
nothing_else() {
  local found
  found=$(find . -mindepth 1 -not -name out.txt -not -name err.txt | sed 's|^\./||' | sort)
  [ "$found" = "$(printf '%s\n' "$@" | sort)" ] || fail "the folder has $found, should have $*"
}

finish() { exit $failed; }
