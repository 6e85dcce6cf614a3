#!/usr/bin/env bash
# The tables of docs/families.md name the families of src/io/families.c, each once: those with experts in theirs, those that are refused in none.
set -euo pipefail
cd "$(dirname "$0")/.."

in_source() { # in_source KIND: the names of the rows with experts (experts), or of the others (dense)
  awk -v kind="$1" '
    function take() { if (name != "" && !refused && experts == (kind == "experts")) print name }
    /\{\.name = "/ { take(); name = $0; sub(/.*\{\.name = "/, "", name); sub(/".*/, "", name); experts = refused = 0 }
    /EXPERTS\(|MOE_LAYER\(/ && !/#define/ { experts = 1 }
    /\.refuse = / { refused = 1 }
    END { take() }' src/io/families.c | sort
}

in_docs() { # in_docs HEADING: the first column of the table below it
  awk -v heading="## $1" -F '|' '
    /^## / { on = $0 == heading }
    on && /^\| / && !/^\| family / { print $2 }' docs/families.md | tr ',' '\n' | sed 's/^ *//; s/ *$//' | sort
}

compare() { # compare KIND HEADING
  [ "$(in_source "$1" | wc -l)" -gt 20 ] || { echo "no rows of kind $1 were found in src/io/families.c"; exit 1; }
  diff <(in_source "$1") <(in_docs "$2") || { echo "src/io/families.c (<) and docs/families.md, \"$2\" (>) name other families"; exit 1; }
}
compare dense "The table"
compare experts "Mixtures of experts"
