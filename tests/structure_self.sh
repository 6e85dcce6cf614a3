#!/usr/bin/env bash
# Proves that structure.sh finds what it looks for: plants one violation after the other in a small tree and expects its sentence.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
plant() { # plant SENTENCE FILE TEXT: the text in that file must make structure.sh print the sentence; SENTENCE "": nothing
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{src/{api,core,dispatch,kernels,base,io,cli},include/ffn,tests}
  printf 'FFN_API int ffn_one(void);\n' >"$work/tree/include/ffn/ffn.h"
  printf 'FFN_0.1 {\n    ffn_one;\n};\n' >"$work/tree/src/ffn.map"
  cp "$work/tree/include/ffn/ffn.h" "$work/tree/include/ffn/ffn_io.h"
  cp "$work/tree/src/ffn.map" "$work/tree/src/io/ffn_io.map"
  printf '%b' "$3" >>"$work/tree/$2"
  local status=0 printed
  printed=$("$here/structure.sh" "$work/tree" 2>&1) || status=$?
  if [ -z "$1" ] && [ $status = 0 ] && [ -z "$printed" ]; then return; fi
  if [ -n "$1" ] && [ $status = 1 ] && [[ $printed == *"$1"* ]]; then return; fi
  echo "$2 with '${3:0:60}': expected '$1', got status $status and '$printed'"
  failed=1
}
lines() { for ((i = 0; i < $1; i++)); do printf 'x;\\n'; done; }

plant '' src/api/a.c '#include <ffn/ffn.h>\n#include <stdio.h>\n#include "a.h"\n#include "core/x.h"\n#include "base/x.h"\n'
plant '' src/kernels/a.c '#include <math.h>\n#include <ffn/ffn.h>\n#include "kernels.h"\n#include "kernels/kernels.h"\n'
plant '' src/core/gemm.c '#include <cblas.h>\n'
plant '' src/base/a.c 'p = malloc(1); free (p); snprintf(p, 1, "");\n'
plant '' src/core/a.c '/* never calls\n malloc(1), printf("") */ // abort()\nint exit_code; reprintf(x);\n'
plant '' src/core/a.c "int f(void) {\n$(lines 58)}\n"
plant '' src/kernels/a.c "int f(void) {\n$(lines 98)}\n"
plant '' src/cli/a.c '#include <ffn/ffn_io.h>\n#include "cli/x.h"\np = malloc(1), printf(""), exit(1);\n'
plant '' src/cli/threads.c '#include <cblas.h>\n'
plant 'cli may include' src/cli/a.c '#include "base/error.h"\n'
plant 'only src/core/gemm.c may' src/cli/run.c '#include <cblas.h>\n'
plant '' src/io/a.c '#include <ffn/ffn_io.h>\n#include "io/file.h"\n#include "base/checked.h"\np = malloc(1);\n'
plant 'io may include' src/io/a.c '#include "core/layer.h"\n'
plant 'the library never calls this' src/io/a.c 'printf("");\n'
plant 'core may include' src/core/a.c '#include "api/x.h"\n'
plant 'dispatch may include' src/dispatch/a.h '  #  include "core/x.h"\n'
plant 'kernels may include' src/kernels/a.c '#include "base/error.h"\n'
plant 'kernels may include' src/kernels/a.c '#include "dispatch/cpu.h"\n'
plant 'base may include' src/base/a.c '#include "core/layer.h"\n'
plant 'no rule for this directory' src/other.c '#include "base/error.h"\n'
plant 'only src/core/gemm.c may' src/core/a.c '#include <cblas.h>\n'
plant 'at most 500' src/core/a.c "$(lines 501)"
plant 'at most 500' tests/a.c "$(lines 501)"
plant 'at most 60 lines' src/core/a.c "int f(void) {\n$(lines 59)}\n"
plant 'at most 60 lines' src/base/a.c "static int f(int a,\n      int b) {\n$(lines 80)}\n"
plant '100)' src/kernels/a.c "int f(void) {\n$(lines 99)}\n"
for call in 'printf("")' 'abort()' 'x = y ? exit (1) : 0' 'openblas_set_num_threads(1)' 'omp_set_num_threads(1)' 'setlocale(1, "")' 'signal(1, f)'; do
  plant 'the library never calls this' src/base/a.c "/* a */ $call; /* b */\n"
done
plant 'memory comes from src/base alone' src/core/a.c 'p = malloc(1);\n'
plant 'memory comes from src/base alone' src/kernels/a.c 'x /* a */; free(p);\n'
plant 'but not in src/ffn.map' include/ffn/ffn.h 'FFN_API const char *ffn_two(int x,\n  int y);\n'
plant 'but not in include/ffn/ffn.h' src/ffn.map '    ffn_two;\n'
plant 'but not in src/io/ffn_io.map' include/ffn/ffn_io.h 'FFN_API void ffn_two(void);\n'
exit $failed
