/* SPDX-License-Identifier: MIT
 * Opening checkpoints that must open.
 */
#include "io/support/checkpoint.h"

#include "io/support/files.h"

const stored_tensor_t *tensor_of(const checkpoint_t *checkpoint, const char *name)
{
    int64_t index = ffnio_checkpoint_find(checkpoint, name);
    if (index < 0) fail_msg("%s: no tensor %s", checkpoint->path, name);
    return &checkpoint->tensors[index];
}

checkpoint_t *open_ok(const char *path)
{
    checkpoint_t *checkpoint;
    assert_io_ok(ffnio_checkpoint_open(path, 0, &checkpoint));
    return checkpoint;
}
