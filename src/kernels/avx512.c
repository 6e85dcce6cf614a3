/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 level: the templates over vectors of 16 floats. (tests/emulate has an immintrin.h that runs this file on AVX2.)
 */
#include <immintrin.h>

#if !defined(FFNI_EMULATE_AVX512) && (!defined(__AVX512F__) || !defined(__AVX512DQ__))
#error "avx512.c must be compiled for AVX-512 (-mavx512f -mavx512bw -mavx512dq -mavx512vl)"
#endif

#include "kernels/kernels.h"
#include "kernels/training.h"

#include <ffn/ffn.h>
#include <math.h>

#include "kernels/activity.h"
#include "kernels/vec_avx512.h"
#include "kernels/vector_math.h"
#include "kernels/activations_template.h"
#include "kernels/activation_passes_template.h"
#include "kernels/row_sums_template.h"
#include "kernels/norms_template.h"
#include "kernels/depthwise_template.h"

/* 32 registers: up to 28 sums. */
#define TILE_ROWS_1 14
#define TILE_ROWS_2 6
#define TILE_ROWS_4 2
#define TILE_PANELS_LOG_OF_MANY 0
#include "kernels/products_template.h"
#include "kernels/activation_tiles_template.h"
#include "kernels/watch_template.h"

#define KERNEL_TABLE ffni_kernels_avx512
#define KERNEL_ISA FFN_ISA_AVX512
#define KERNEL_TRAINING ffni_training_avx512
#include "kernels/kernel_table_template.h"
