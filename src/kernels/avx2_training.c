/* SPDX-License-Identifier: MIT
 *
 * The AVX2 + FMA level of the training table.
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "avx2_training.c must be compiled for AVX2 and FMA (-mavx2 -mfma)"
#endif

#include "kernels/training.h"

#include <math.h>

#include "kernels/drop.h"
#include "kernels/vec_avx2.h"
#include "kernels/vector_math.h"
#include "kernels/activations_template.h"
#include "kernels/slopes_template.h"
#include "kernels/derivative_passes_template.h"
#include "kernels/row_sums_template.h"
#include "kernels/norm_derivatives_template.h"
#include "kernels/optimisers_template.h"
#include "kernels/depthwise_slopes_template.h"
#include "kernels/survey_template.h"

#define TRAINING_TABLE ffni_training_avx2
#include "kernels/training_table_template.h"
