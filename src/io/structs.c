/* SPDX-License-Identifier: MIT
 * base/structs.c once more, reporting to the sentence of libffn-io and under its names (error.h). */
#include "io/error.h"

#include "base/structs.c"
