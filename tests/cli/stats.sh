#!/usr/bin/env bash
# ffn stats: the same figures by chain, by each layer and in blocks of rows; no rows; and the plot, which is there whole or not at all.
# shellcheck source=common.sh disable=SC1091,SC2154
. "$(dirname "$0")/common.sh"
helper model model.safetensors
helper random x.npy 1 3 5 24
helper random many.npy 7 9000 24
helper random none.npy 1 0 24
helper random narrow.npy 1 3 23

# figures FILE LAYER: what the JSON says of a layer, from its number to the next one's
figures() { awk -v layer="\"layer\": $2," 'index($0, "\"layer\":") { on = index($0, layer) } on' "$1"; }
# field FILE LAYER NAME
field() { figures "$1" "$2" | sed -nE "s/^ *\"$3\": ([^,]*),?$/\1/p"; }

# ---------------------------------------------------------------- the same by every way
expect 0 ffn stats model.safetensors --input many.npy --json && cp out.txt chain.json
expect 0 ffn stats model.safetensors --layer all --input many.npy --json
diff chain.json out.txt >/dev/null || fail "--layer all gives other figures"
# The native engine's bits do not depend on threads; those of OpenBLAS, which goes with the scalar kernels, do on some CPUs.
if ! grep -q '"isa": "scalar"' chain.json; then
  expect 0 ffn stats model.safetensors --input many.npy --threads 1 --json
  diff <(grep -v '"threads"' chain.json) <(grep -v '"threads"' out.txt) >/dev/null || fail "one thread gives other figures"
fi
expect 0 ffn stats model.safetensors --input many.npy --each --json && cp out.txt each.json
[ "$(figures chain.json 0)" = "$(figures each.json 0)" ] || fail "the first layer of the chain gets the array itself"
expect 0 ffn run model.safetensors --layer 0 --input many.npy --output y.npy --quiet
expect 0 ffn stats model.safetensors --layer 1 --input y.npy --json
for name in positive density mean largest dead_units non_finite; do
  [ -n "$(field out.txt 1 $name)" ] || fail "no $name of layer 1"
  [ "$(field out.txt 1 $name)" = "$(field chain.json 1 $name)" ] || fail "$name of layer 1 on layer 0's output is not the chain's"
done
[ "$(field chain.json 2 positions)" = 9000 ] || fail "positions of several blocks: $(field chain.json 2 positions)"
units=$(field chain.json 0 d_ff)
counted=$(figures chain.json 0 | sed -n '/histogram/,/\]/p' | grep -oE '[0-9]+' | awk '{ sum += $1 } END { print sum }')
[ "$counted" = "$units" ] || fail "the histogram has $counted units of $units"
awk -v p="$(field chain.json 0 positive)" -v f="$(field chain.json 0 density)" -v u="$units" \
  'BEGIN { exit !(p / 9000 / u - f < 1e-8 && f - p / 9000 / u < 1e-8) }' || fail "density is not positive / (positions * d_ff)"

# ---------------------------------------------------------------- what is dead and what is always on
# at a single position a unit is above 0 or dead
helper random row.npy 1 24
expect 0 ffn stats model.safetensors --layer 0 --activation relu --input row.npy --json
[ $(($(field out.txt 0 positive) + $(field out.txt 0 dead_units))) = "$units" ] || fail "dead units at one position: $(figures out.txt 0 | head -n 20)"
[ "$(field out.txt 0 dead_units)" -gt 0 ] || fail "no unit of a relu layer is dead at one position"
expect 0 ffn stats model.safetensors --layer 0 --activation sigmoid --input x.npy --json
[ "$(field out.txt 0 density)" = 1.0 ] || fail "a sigmoid is always above 0: $(field out.txt 0 density)"

# ---------------------------------------------------------------- no rows
expect 0 ffn stats model.safetensors --input none.npy --json
[ "$(field out.txt 0 density)$(field out.txt 0 mean)$(field out.txt 0 dead_units)" = nullnull0 ] || fail "figures of no rows: $(figures out.txt 0 | head -n 20)"
expect 0 ffn stats model.safetensors --input none.npy
[ "$(awk 'NR == 2 { print $6, $8, $9 }' out.txt)" = "- - -" ] || fail "the table of no rows: $(cat out.txt)"

# ---------------------------------------------------------------- what is wrong
expect 2 ffn stats --input x.npy && says "no MODEL"
expect 2 ffn stats model.safetensors && says "--input"
expect 1 ffn stats model.safetensors --input narrow.npy && says narrow.npy 23 24
expect 1 ffn stats model.safetensors --input narrow.npy --each && says narrow.npy 23 24
expect 1 ffn stats model.safetensors --layer 3 --input x.npy && says "no layer 3"
expect 1 ffn stats model.safetensors --input missing.npy && says missing.npy
for name in plot plot.gif png; do
  expect 1 ffn stats model.safetensors --input x.npy --plot $name && says $name ".png, .svg or .pdf"
done

# ---------------------------------------------------------------- plots
rm -f ./*.json y.npy row.npy
files=(model.safetensors x.npy many.npy none.npy narrow.npy)
mkdir bin
files+=(bin)
expect 1 env PATH="$work/bin" "$FFN" stats model.safetensors --input x.npy --plot p.png
says p.png matplotlib gnuplot
grep -q '^layer' out.txt || fail "without a program to draw it the table is lost"
nothing_else "${files[@]}"

# a program that finds matplotlib and cannot draw
tool() { # tool NAME LINE...: an executable in bin
  local name=$1
  shift
  printf '%s\n' '#!/bin/sh' "$@" >"bin/$name"
  chmod +x "bin/$name"
  case " ${files[*]} " in *" bin/$name "*) ;; *) files+=("bin/$name") ;; esac
}
# shellcheck disable=SC2016 # the tool's own
tool python3 'case $2 in "import matplotlib") exit 0 ;; esac' 'echo half a picture' 'echo some words >&2' 'echo no fonts at all >&2' 'exit 3'
echo before >p.svg
files+=(p.svg)
expect 1 env PATH="$work/bin:/usr/bin:/bin" "$FFN" stats model.safetensors --input x.npy --plot p.svg
says p.svg matplotlib "no fonts at all"
[ "$(cat p.svg)" = before ] || fail "a failure has changed the plot"
nothing_else "${files[@]}"

# one that draws: it gets the format, and a line for each layer
# shellcheck disable=SC2016
tool python3 'case $2 in "import matplotlib") exit 0 ;; esac' 'echo "$3"' 'exec /bin/cat'
expect 0 env PATH="$work/bin:/usr/bin:/bin" "$FFN" stats model.safetensors --input x.npy --plot p.svg
[ "$(head -n 1 p.svg)" = svg ] || fail "the format is $(head -n 1 p.svg)"
[ "$(wc -l <p.svg)" = 4 ] || fail "the lines for three layers: $(cat p.svg)"
[ "$(awk 'NR > 1 { print NF, $1, $2 }' p.svg)" = "$(printf '44 %s\n' "0 $units" "1 $units" "2 $units")" ] || fail "the numbers of a plot: $(cat p.svg)"
expect 1 env PATH="$work/bin:/usr/bin:/bin" "$FFN" stats model.safetensors --input x.npy --plot no-such-folder/p.svg
says no-such-folder/p.svg
expect 0 env PATH="$work/bin:/usr/bin:/bin" "$FFN" stats model.safetensors --input none.npy --plot p.svg
[ "$(awk 'NR == 2 { print $4 }' p.svg)" = nan ] || fail "the density of no rows: $(cat p.svg)"
nothing_else "${files[@]}"

# the real ones. python3 is one that finds nothing, so that gnuplot's turn comes
begins() { # begins FILE TEXT
  [ "$(head -c "${#2}" "$1" | tr '\0' ' ')" = "$2" ] || fail "$1 does not begin with $2: $(head -c 40 "$1")"
}
draw() {
  local format
  for format in png svg pdf; do
    expect 0 env PATH="$1" "$FFN" stats model.safetensors --input x.npy --plot "p.$format"
    [ ! -s err.txt ] || fail "drawing $format says $(cat err.txt)"
  done
  begins p.png "$(printf '\211PNG')"
  begins p.svg '<?xml'
  begins p.pdf '%PDF'
  grep -q hidden_density_logit p.svg || [ "$2" = matplotlib ] || fail "the plot has no label"
  rm -f p.png p.svg p.pdf
}
if command -v gnuplot >/dev/null; then
  tool python3 'exit 1'
  draw "$work/bin:$PATH" gnuplot
fi
rm bin/python3
if python3 -c 'import matplotlib' 2>/dev/null; then draw "$PATH" matplotlib; fi
finish
