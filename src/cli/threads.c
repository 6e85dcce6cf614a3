/* SPDX-License-Identifier: MIT
 * Setting thread counts. The only file of the program that sees cblas.h. */
#include "cli/threads.h"

#include "cli/text.h"

#include <cblas.h>

void threads_set_blas(uint32_t threads) {
    openblas_set_num_threads((int)threads);
}

ffn_context_t *threads_make(uint32_t threads, uint32_t *made) {
    ffn_context_options_t options = {.struct_size = sizeof options, .threads = threads};
    ffn_context_info_t info = {.struct_size = sizeof info};
    ffn_context_t *context;
    if (ffn_context_create(&options, &context) || ffn_context_info(context, &info)) {
        complain("%s", ffn_last_error());
        ffn_context_free(context);
        return NULL;
    }
    threads_set_blas(info.threads);
    *made = info.threads;
    return context;
}
