/* SPDX-License-Identifier: MIT
 *
 * The AVX2 + FMA level: the templates over vectors of 8 floats.
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "avx2.c must be compiled for AVX2 and FMA (-mavx2 -mfma)"
#endif

#include "kernels/kernels.h"
#include "kernels/training.h"

#include <ffn/ffn.h>
#include <math.h>

#include "kernels/activity.h"
#include "kernels/vec_avx2.h"
#include "kernels/vector_math.h"
#include "kernels/activations_template.h"
#include "kernels/activation_passes_template.h"
#include "kernels/row_sums_template.h"
#include "kernels/norms_template.h"
#include "kernels/depthwise_template.h"

/* 16 registers: 12 sums, 2 to 4 of the panels, 1 number. */
#define TILE_ROWS_1 6
#define TILE_ROWS_2 3
#define TILE_ROWS_4 1
#define TILE_PANELS_LOG_OF_MANY 0
#include "kernels/products_template.h"
#include "kernels/activation_tiles_template.h"
#include "kernels/watch_template.h"

#define KERNEL_TABLE ffni_kernels_avx2
#define KERNEL_ISA FFN_ISA_AVX2
#define KERNEL_TRAINING ffni_training_avx2
#include "kernels/kernel_table_template.h"
