/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 level of the training table. (tests/emulate has an immintrin.h that runs this file on AVX2.)
 */
#include <immintrin.h>

#if !defined(FFNI_EMULATE_AVX512) && (!defined(__AVX512F__) || !defined(__AVX512DQ__))
#error "avx512_training.c must be compiled for AVX-512 (-mavx512f -mavx512bw -mavx512dq -mavx512vl)"
#endif

#include "kernels/training.h"

#include <math.h>

#include "kernels/drop.h"
#include "kernels/vec_avx512.h"
#include "kernels/vector_math.h"
#include "kernels/activations_template.h"
#include "kernels/slopes_template.h"
#include "kernels/derivative_passes_template.h"
#include "kernels/row_sums_template.h"
#include "kernels/norm_derivatives_template.h"
#include "kernels/optimisers_template.h"
#include "kernels/depthwise_slopes_template.h"
#include "kernels/survey_template.h"

#define TRAINING_TABLE ffni_training_avx512
#include "kernels/training_table_template.h"
