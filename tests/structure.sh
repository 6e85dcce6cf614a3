#!/usr/bin/env bash
# The structure of the source, as CONTRIBUTING.md tells it: who includes whom, how long files and functions are, what the library never calls,
# and that header and version script name the same functions. Prints every violation; exits with 1 if there is one.
#   structure.sh [ROOT]    ROOT: another tree than this one
set -euo pipefail
cd "${1-$(dirname "$0")/..}"

found=0
violation() {
  echo "$*"
  found=1
}

# include directions: which directories the files of a directory may include ("public" is include/ffn)
declare -A may_include=(
  [api]="api core dispatch kernels base public"
  [core]="core dispatch kernels base public"
  [dispatch]="dispatch kernels base public"
  [kernels]="kernels public" # for FFN_ISA_*
  [base]="base public"
  [io]="io base public" # a library of its own, libffn-io
  [cli]="cli public"    # a program, which may print and exit, and set its BLAS's threads
)
while IFS=: read -r file included; do
  from=${file#src/}
  from=${from%%/*}
  case $included in
  ?ffn/*) to=public ;;
  \<*) continue ;;
  \"*/*) to=${included#\"} to=${to%%/*} ;;
  *) to=$from ;;
  esac
  case " ${may_include[$from]-} " in
  *" $to "*) ;;
  *) violation "$file includes $included: $from may include ${may_include[$from]-nothing: no rule for this directory}" ;;
  esac
done < <(grep -rHoE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]*[">]' src | sed -E 's/:[^"<]*(["<])/:\1/')

while read -r file; do
  case $file in
  src/core/gemm.c | src/cli/threads.c) ;;
  *) violation "$file includes cblas.h: only src/core/gemm.c may, and src/cli/threads.c" ;;
  esac
done < <(grep -rlE --include='*.[ch]' '#[[:space:]]*include.*cblas\.h' src)

# lengths
while read -r lines file; do
  [ "$lines" -le 500 ] || violation "$file has $lines lines: at most 500"
done < <(find src tests bindings \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.rs' \) -exec wc -l {} \; 2>/dev/null)

functions_longer_than() { # functions_longer_than LIMIT FILE...
  local limit=$1
  shift
  awk -v limit="$limit" '
    FNR == 1 { start = 0 }
    /^[A-Za-z_].*\(/ && !/;[ \t]*$/ { start = FNR; name = $0 }
    /^\}/ { if (start && FNR - start + 1 > limit) print FILENAME ":" start ": " FNR - start + 1 " lines: " name; start = 0 }' "$@"
}
while read -r long; do
  violation "$long (a function has at most 60 lines, in src/kernels 100)"
done < <(find src -name '*.[ch]' -path 'src/kernels/*' -print0 | while IFS= read -r -d '' file; do functions_longer_than 100 "$file"; done
  find src -name '*.[ch]' -not -path 'src/kernels/*' -print0 | while IFS= read -r -d '' file; do functions_longer_than 60 "$file"; done)

# calls: the library never prints, ends the process or changes what belongs to the host; the memory of libffn comes from
# src/base alone
calls() { # calls REGEX FILE: the lines of FILE, comments blanked, that call a function of these names
  awk '
    { line = $0; out = ""
      while (line != "") {
        if (inside) { end = index(line, "*/"); if (!end) { line = ""; break }; line = substr(line, end + 2); inside = 0; continue }
        begin = index(line, "/*"); rest = index(line, "//")
        if (rest && (!begin || rest < begin)) { out = out substr(line, 1, rest - 1); break }
        if (!begin) { out = out line; break }
        out = out substr(line, 1, begin - 1) " "; line = substr(line, begin + 2); inside = 1
      }
      print FILENAME ":" FNR ": " out
    }' "$2" | grep -E "(^|[^A-Za-z0-9_])($1) *\(" || true
}
never='printf|vprintf|fprintf|vfprintf|puts|fputs|putchar|perror|abort|exit|_exit|quick_exit|assert|setlocale|signal|sigaction|fesetround|feenableexcept|openblas_set_[a-z_]*|goto_set_num_threads|omp_set_[a-z_]*|putenv|setenv'
memory='malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign|mmap|munmap|alloca'
# The one exception: core/gemm.c hands a caller's number of OpenMP threads on to a thread of libffn's own.
handed_on='^src/core/gemm\.c:.*omp_set_num_threads'
while IFS= read -r -d '' file; do
  while read -r line; do violation "$line (the library never calls this)"; done < <(calls "$never" "$file" | grep -vE "$handed_on")
  case $file in
  src/base/* | src/io/*) ;;
  *) while read -r line; do violation "$line (memory comes from src/base alone)"; done < <(calls "$memory" "$file") ;;
  esac
done < <(find src -name '*.[ch]' -not -path 'src/cli/*' -print0)

# the exported functions: each header's and its version script's
same_functions() { # same_functions HEADER VERSION-SCRIPT
  local declared exported name
  declared=$(sed -nE 's/^FFN_API [a-z0-9_ *]*[ *](ffn_[a-z0-9_]+)\(.*/\1/p' "$1" | sort)
  exported=$(sed -nE 's/^ +(ffn_[a-z0-9_]+);/\1/p' "$2" | sort)
  [ -n "$declared" ] || violation "found no function in $1"
  while read -r name; do violation "$name is in $1 but not in $2"; done < <(comm -23 <(echo "$declared") <(echo "$exported"))
  while read -r name; do violation "$name is in $2 but not in $1"; done < <(comm -13 <(echo "$declared") <(echo "$exported"))
  [ "$(grep -c '^FFN_API ' "$1")" = "$(grep -c . <<<"$declared")" ] || violation "a declaration of $1 has an unexpected form"
}
same_functions include/ffn/ffn.h src/ffn.map
same_functions include/ffn/ffn_io.h src/io/ffn_io.map

exit $found
