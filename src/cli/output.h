/* SPDX-License-Identifier: MIT
 * The output file: under its name once it is whole, and gone without a trace when the work fails or a signal ends the program. There is one
 * of them at a time. */
#ifndef FFN_CLI_OUTPUT_H
#define FFN_CLI_OUTPUT_H

#include <ffn/ffn_io.h>

/* Each returns an exit status, and complains where it is not EXIT_FINE. After a failure the file is gone; output_discard does no harm then. */
int output_open(const char *path, uint32_t ndim, const int64_t *shape);
int output_append(const float *numbers, int64_t count);
int output_finish(void);
void output_discard(void);

#endif
