#!/usr/bin/env bash
# struct_size: programs compiled against an older header (the structs that grow are smaller), this one, and a newer one (each struct has a
# field more, which is zero or not) run with the library of today.
#   callers.sh LIBFFN.SO
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
library=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The header with fields taken away at the end of each struct that begins with struct_size until it is 8 bytes shorter (structs have no holes), or
# with one field more. The fields of ffn_allocator_t are all required: it stays.
header() { # header older|newer
  awk -v age="$1" '
    function size(line) { sub(/;.*/, "", line); return line ~ /\*|64_t/ ? 8 : 4 }
    /^typedef struct [a-z_]+ \{/ { inside = 1; grows = 0; kept = 0 }
    inside && /struct_size;/ { grows = 1 }
    /^\} ffn_[a-z_]+_t;/ && inside {
      inside = 0
      if (grows && age == "newer") line[++kept] = "    uint64_t newer;"
      if (grows && age == "older" && $0 !~ /ffn_allocator_t/)
        for (left = 8; left > 0; kept--) if (line[kept] ~ /^    [a-z].*;/) left -= size(line[kept])
      for (i = 1; i <= kept; i++) print line[i]
    }
    inside { line[++kept] = $0; next }
    { print }' "$source/include/ffn/ffn.h"
}

program() { # program AGE FLAG...: $work/AGE
  gcc -std=c11 -Wall -Wextra -Werror "${@:2}" "$here/caller.c" "$library" -Wl,-rpath,"$(cd "$(dirname "$library")" && pwd)" -o "$work/$1"
}
for age in older newer; do
  mkdir -p "$work/include-$age/ffn"
  header $age >"$work/include-$age/ffn/ffn.h"
  program $age -I"$work/include-$age" "-DCALLER_${age^^}"
done
program equal -I"$source/include"

# each program prints its sizes in the same order
for age in older equal newer; do "$work/$age" sizes >"$work/sizes-$age"; done
while read -r name older _ equal _ newer; do
  if [ "$older" -ge "$equal" ] && [ "$name" != ffn_allocator_t ] || [ "$equal" -ge "$newer" ]; then
    echo "$name has $older, $equal and $newer bytes: the headers are not what they should be"
    exit 1
  fi
done < <(paste -d' ' "$work"/sizes-{older,equal,newer})
"$work/older" run
"$work/equal" run
"$work/newer" run
