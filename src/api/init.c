/* SPDX-License-Identifier: MIT
 * ffn_weight_init: check, then fill. */
#include <ffn/ffn.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/structs.h"
#include "core/init.h"

#include <inttypes.h>

ffn_status_t ffn_weight_init(float *values, int64_t count, const ffn_init_options_t *given) {
    ffn_init_options_t options;
    ffn_status_t status = ffni_struct_read(&options, sizeof options, given, "ffn_init_options_t");
    if (status) return status;
    fpenv_t saved = fpenv_enter();
    status = ffni_init_check(&options);
    if (status) goto cleanup;
    if (count < 0 || count > INT64_MAX / 4) {
        status = ffni_fail(FFN_INVALID, "count is %" PRId64 ", must be 0 to %" PRId64, count, INT64_MAX / 4);
    } else if (count && (!values || (uintptr_t)values % 4)) {
        status = ffni_fail(FFN_INVALID, values ? "values is not at a multiple of 4 bytes" : "values is NULL");
    } else {
        ffni_init_fill(values, count, &options);
    }
cleanup:
    fpenv_leave(saved);
    return status;
}
