/* SPDX-License-Identifier: MIT
 * A user of libffn-io: writes an array, reads it back, and sees that each library keeps its own error sentence. */
#include <ffn/ffn_io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "io_consumer: %s (libffn-io: \"%s\", libffn: \"%s\")\n", what, ffn_io_last_error(), ffn_last_error());
    exit(EXIT_FAILURE);
}

int main(void) {
    static const int64_t shape[] = {2, 3};
    static const float numbers[] = {1, 2, 3, 4, 5, 6};
    const char *folder = getenv("TMPDIR");
    char path[512];
    float got[6];
    int64_t width;
    ffn_npy_writer_t *writer;
    ffn_npy_t *npy;
    ffn_model_t *model;
    snprintf(path, sizeof path, "%s/io_consumer.npy", folder ? folder : "/tmp");
    expect(ffn_npy_writer_open(path, 2, shape, &writer) == FFN_OK, "an array is begun");
    expect(ffn_npy_writer_append(writer, numbers, 6) == FFN_OK && ffn_npy_writer_finish(writer) == FFN_OK, "an array is written");
    expect(ffn_npy_open(path, &npy) == FFN_OK && ffn_npy_read(npy, 0, 2, got) == FFN_OK, "an array is read");
    expect(!memcmp(got, numbers, sizeof got), "the numbers come back");
    ffn_npy_free(npy);
    remove(path);

    expect(ffn_gated_d_ff(-1, 1, &width) == FFN_INVALID && !ffn_io_last_error()[0], "a failure of libffn is not libffn-io's");
    expect(ffn_model_open("/absent.safetensors", NULL, &model) == FFN_FILE && !model, "an absent file is refused");
    expect(strstr(ffn_io_last_error(), "/absent.safetensors") != NULL, "the sentence names the file");
    expect(!strstr(ffn_last_error(), "absent"), "a failure of libffn-io is not libffn's");
    expect(!strcmp(ffn_io_status_name(FFN_FILE), "FFN_FILE") && !strcmp(ffn_io_status_name(FFN_BUSY), "FFN_BUSY"), "statuses have names");
    return 0;
}
