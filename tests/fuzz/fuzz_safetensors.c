/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the safetensors reader: what opens can be read through, and its tensors cover the file.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/input.h"
#include "io/safetensors.h"

static void read_tensor(const checkpoint_t *checkpoint, const stored_tensor_t *tensor, int64_t size)
{
    must(tensor->offset >= 8 && tensor->bytes >= 0 && tensor->offset <= size - tensor->bytes);
    must(tensor->elements >= 0 && strlen(tensor->name) < (size_t)size);
    int64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++) elements *= tensor->shape[i];
    must(elements == tensor->elements);
    if (tensor->dtype->element == ELEMENT_OTHER) return;
    float *numbers = malloc((size_t)elements * sizeof *numbers + 1);
    must(numbers != NULL);
    must(ffnio_tensor_read(checkpoint, tensor, 0, elements, numbers) == FFN_OK);
    must(ffnio_tensor_read(checkpoint, tensor, elements, 1, numbers) == FFN_INVALID);
    const float *mapped = ffnio_tensor_mapped(checkpoint, tensor);
    if (mapped) must(!memcmp(mapped, numbers, (size_t)tensor->bytes));
    free(numbers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static input_file_t file = {.descriptor = -1};
    checkpoint_t *checkpoint;
    input_file_set(&file, data, size);
    ffn_status_t status = ffnio_checkpoint_open(file.path, 1, &checkpoint);
    if (status) {
        must_be_refusal(status, file.path);
        must(!checkpoint);
        return 0;
    }
    int64_t bytes = 0;
    for (int64_t i = 0; i < checkpoint->tensor_count; i++) {
        const stored_tensor_t *tensor = &checkpoint->tensors[i];
        read_tensor(checkpoint, tensor, (int64_t)size);
        bytes += tensor->bytes;
        must(ffnio_checkpoint_find(checkpoint, tensor->name) == i);
        if (i) must(strcmp(tensor[-1].name, tensor->name) < 0);
    }
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    must(8 + header + (uint64_t)bytes == size);
    ffnio_checkpoint_close(checkpoint);
    return 0;
}
