/* SPDX-License-Identifier: MIT
 * What the shell tests of the ffn program cannot do themselves: make models and arrays, take arrays out of models, compare arrays. Like the
 * program it knows the public headers alone.
 *     cli_helper model OUT                     three layers of LLaMA's names and shapes
 *     cli_helper parts OUT MODEL               layer 0 of that model in other layouts, under names of no family
 *     cli_helper experts OUT MODEL             that layer as each of 4 experts of a Mixtral, behind a dense layer of that model's
 *     cli_helper stacks OUT MODEL              the experts of that model as stacks, under names of no family
 *     cli_helper random OUT.npy SEED DIM...
 *     cli_helper extract MODEL TENSOR OUT.npy
 *     cli_helper compare GOT.npy EXPECTED.npy TOLERANCE     of the largest expected value; prints the largest error relative to it
 *     cli_helper scale IN.npy FACTOR OUT.npy
 *     cli_helper slice IN.npy FIRST COUNT OUT.npy           rows
 *     cli_helper subtract A.npy B.npy OUT.npy
 */
#include <ffn/ffn_io.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D_MODEL = 24, D_FF = 40, LAYERS = 3, MOST_TENSORS = 32, EXPERTS = 4 };

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "cli_helper: %s\n", what);
    exit(1);
}

static void require(ffn_status_t status) {
    if (status) fail(ffn_io_last_error());
}

static float *allocate(int64_t count) {
    float *made = calloc((size_t)(count > 0 ? count : 1), sizeof *made);
    if (!made) fail("out of memory");
    return made;
}

static float *random_numbers(int64_t count, uint64_t seed, float scale) {
    float *made = allocate(count);
    seed = seed * 2862933555777941757u + 3037000493u;
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        made[i] = scale * ((float)(int32_t)(seed >> 32) / 2147483648.0f);
    }
    return made;
}

/* ---------------------------------------------------------------- .npy */

typedef struct array {
    ffn_npy_info_t is;
    float *numbers;
} array_t;

static array_t array_read(const char *path) {
    array_t array = {.is.struct_size = sizeof array.is};
    ffn_npy_t *npy;
    require(ffn_npy_open(path, &npy));
    require(ffn_npy_info(npy, &array.is));
    array.numbers = allocate(array.is.rows * array.is.columns);
    require(ffn_npy_read(npy, 0, array.is.rows, array.numbers));
    ffn_npy_free(npy);
    return array;
}

static void array_write(const char *path, uint32_t ndim, const int64_t *shape, float *numbers) {
    ffn_npy_writer_t *writer;
    int64_t count = 1;
    for (uint32_t i = 0; i < ndim; i++) count *= shape[i];
    require(ffn_npy_writer_open(path, ndim, shape, &writer));
    require(ffn_npy_writer_append(writer, numbers, count));
    require(ffn_npy_writer_finish(writer));
    free(numbers);
}

static int compare(char **words) {
    array_t got = array_read(words[0]), expected = array_read(words[1]);
    double tolerance = strtod(words[2], NULL), largest = 0, worst = 0;
    int64_t count = got.is.rows * got.is.columns, at = 0;
    if (got.is.ndim != expected.is.ndim || memcmp(got.is.shape, expected.is.shape, sizeof got.is.shape)) fail("the shapes differ");
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)expected.numbers[i]));
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)got.numbers[i] - (double)expected.numbers[i]);
        if (!(error <= worst)) worst = error, at = i; /* NaN too */
    }
    int right = count > 0 && worst <= tolerance * largest;
    printf("%.2g\n", worst / largest);
    if (!right && count > 0)
        fprintf(stderr, "element %" PRId64 ": got %.9g, expected %.9g; off by %.3g of the largest value, allowed %.3g\n", at,
                (double)got.numbers[at], (double)expected.numbers[at], worst / largest, tolerance);
    free(got.numbers);
    free(expected.numbers);
    return !right;
}

static int subtract(char **words) {
    array_t a = array_read(words[0]), b = array_read(words[1]);
    if (memcmp(a.is.shape, b.is.shape, sizeof a.is.shape)) fail("the shapes differ");
    for (int64_t i = 0; i < a.is.rows * a.is.columns; i++) a.numbers[i] -= b.numbers[i];
    array_write(words[2], a.is.ndim, a.is.shape, a.numbers);
    free(b.numbers);
    return 0;
}

static int scale(char **words) {
    array_t a = array_read(words[0]);
    for (int64_t i = 0; i < a.is.rows * a.is.columns; i++) a.numbers[i] *= strtof(words[1], NULL);
    array_write(words[2], a.is.ndim, a.is.shape, a.numbers);
    return 0;
}

static int slice(char **words) {
    array_t a = array_read(words[0]);
    int64_t first = strtoll(words[1], NULL, 10), shape[2] = {strtoll(words[2], NULL, 10), a.is.columns};
    if (first + shape[0] > a.is.rows) fail("there are not so many rows");
    float *rows = allocate(shape[0] * shape[1]);
    memcpy(rows, a.numbers + first * shape[1], (size_t)(shape[0] * shape[1]) * sizeof *rows);
    array_write(words[3], 2, shape, rows);
    free(a.numbers);
    return 0;
}

static int random_array(int count, char **words) {
    int64_t shape[32] = {0}, total = 1;
    for (int i = 2; i < count; i++) total *= shape[i - 2] = strtoll(words[i], NULL, 10);
    array_write(words[0], (uint32_t)(count - 2), shape, random_numbers(total, strtoull(words[1], NULL, 10), 2));
    return 0;
}

/* ---------------------------------------------------------------- safetensors */

typedef struct tensor {
    char name[96];
    int64_t rows, columns; /* columns 0: a vector */
    float *numbers;
} tensor_t;

typedef struct file {
    tensor_t tensor[MOST_TENSORS];
    int count;
} file_t;

static int64_t tensor_size(const tensor_t *tensor) {
    return tensor->rows * (tensor->columns ? tensor->columns : 1);
}

static float *file_add(file_t *file, const char *name, int64_t rows, int64_t columns, float *numbers) {
    if (file->count == MOST_TENSORS) fail("too many tensors");
    tensor_t *tensor = &file->tensor[file->count++];
    *tensor = (tensor_t){.rows = rows, .columns = columns, .numbers = numbers};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    return numbers;
}

static void file_write(file_t *file, const char *path) {
    char header[8192];
    int64_t offset = 0;
    int used = snprintf(header, sizeof header, "{");
    for (int i = 0; i < file->count; i++) {
        const tensor_t *tensor = &file->tensor[i];
        int64_t end = offset + tensor_size(tensor) * 4;
        char second[32] = "";
        if (tensor->columns) snprintf(second, sizeof second, ",%" PRId64, tensor->columns);
        used += snprintf(header + used, sizeof header - (size_t)used,
                         "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 "%s],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", i ? "," : "",
                         tensor->name, tensor->rows, second, offset, end);
        offset = end;
    }
    used += snprintf(header + used, sizeof header - (size_t)used, "}");
    while (used % 8) header[used++] = ' ';
    FILE *to = fopen(path, "wb");
    uint64_t length = (uint64_t)used; /* as a machine of little-endian order has it */
    if (!to || fwrite(&length, 8, 1, to) != 1 || fwrite(header, (size_t)used, 1, to) != 1) fail("cannot write the model");
    for (int i = 0; i < file->count; i++) {
        size_t size = (size_t)tensor_size(&file->tensor[i]);
        if (fwrite(file->tensor[i].numbers, 4, size, to) != size) fail("cannot write the model");
        free(file->tensor[i].numbers);
    }
    if (fclose(to)) fail("cannot write the model");
}

static int model(char **words) {
    file_t file = {0};
    for (int i = 0; i < LAYERS; i++) {
        char name[64];
        uint64_t seed = 10 * (uint64_t)i;
        snprintf(name, sizeof name, "model.layers.%d.mlp.gate_proj.weight", i);
        file_add(&file, name, D_FF, D_MODEL, random_numbers(D_FF * D_MODEL, seed + 1, 0.4f));
        snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", i);
        file_add(&file, name, D_FF, D_MODEL, random_numbers(D_FF * D_MODEL, seed + 2, 0.4f));
        snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj.weight", i);
        file_add(&file, name, D_MODEL, D_FF, random_numbers(D_FF * D_MODEL, seed + 3, 0.4f));
        snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", i);
        file_add(&file, name, D_MODEL, 0, random_numbers(D_MODEL, seed + 4, 1.5f));
    }
    file_write(&file, words[0]);
    return 0;
}

static float *tensor_read(const ffn_model_t *from, const char *name, ffn_model_tensor_t *tensor) {
    int64_t index;
    tensor->struct_size = sizeof *tensor;
    require(ffn_model_find(from, name, &index));
    require(ffn_model_tensor(from, index, tensor));
    float *numbers = allocate(tensor->elements);
    require(ffn_model_read(from, index, numbers));
    return numbers;
}

static float *transposed(const float *matrix, int64_t rows, int64_t columns) {
    float *made = allocate(rows * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) made[k * rows + i] = matrix[i * columns + k];
    return made;
}

static int parts(char **words) {
    enum { SIZE = D_FF * D_MODEL };
    ffn_model_t *from;
    ffn_model_tensor_t about;
    file_t file = {0};
    require(ffn_model_open(words[1], NULL, &from));
    float *gate = tensor_read(from, "model.layers.0.mlp.gate_proj.weight", &about);
    float *up = tensor_read(from, "model.layers.0.mlp.up_proj.weight", &about);
    float *down = tensor_read(from, "model.layers.0.mlp.down_proj.weight", &about);
    float *fused = file_add(&file, "gate_up", 2 * D_FF, D_MODEL, allocate(2 * SIZE));
    float *mixed = file_add(&file, "mixed:even", 2 * D_FF, D_MODEL, allocate(2 * SIZE)); /* a name that ends like a suffix */
    memcpy(fused, gate, SIZE * sizeof *gate);
    memcpy(fused + SIZE, up, SIZE * sizeof *up);
    for (int64_t i = 0; i < D_FF; i++) {
        memcpy(mixed + 2 * i * D_MODEL, gate + i * D_MODEL, D_MODEL * sizeof *gate);
        memcpy(mixed + (2 * i + 1) * D_MODEL, up + i * D_MODEL, D_MODEL * sizeof *up);
    }
    file_add(&file, "gate_up_t", D_MODEL, 2 * D_FF, transposed(fused, 2 * D_FF, D_MODEL));
    file_add(&file, "block.0.down_t", D_FF, D_MODEL, transposed(down, D_MODEL, D_FF));
    file_add(&file, "norm", D_MODEL, 0, tensor_read(from, "model.layers.0.post_attention_layernorm.weight", &about));
    float *half = file_add(&file, "half", 1, 0, allocate(1));
    *half = 0.549306144334f; /* atanh(0.5) */
    file_write(&file, words[0]);
    ffn_model_free(from);
    free(gate);
    free(up);
    free(down);
    return 0;
}

static int experts(char **words) {
    static const char *const dense[] = {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}, *const w[] = {"w1", "w3", "w2"};
    static const char norm[] = "post_attention_layernorm.weight";
    ffn_model_t *from;
    ffn_model_tensor_t about;
    file_t file = {0};
    char name[96], source[96];
    require(ffn_model_open(words[1], NULL, &from));
    for (int part = 0; part < 3; part++) {
        snprintf(source, sizeof source, "model.layers.0.%s", dense[part]);
        float *numbers = tensor_read(from, source, &about);
        for (int e = 0; e < EXPERTS; e++) {
            snprintf(name, sizeof name, "model.layers.1.block_sparse_moe.experts.%d.%s.weight", e, w[part]);
            float *copy = file_add(&file, name, about.shape[0], about.shape[1], allocate(about.elements));
            memcpy(copy, numbers, (size_t)about.elements * sizeof *copy);
        }
        file_add(&file, source, about.shape[0], about.shape[1], numbers);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s", i, norm);
        file_add(&file, name, D_MODEL, 0, tensor_read(from, "model.layers.0.post_attention_layernorm.weight", &about));
    }
    file_add(&file, "model.layers.1.block_sparse_moe.gate.weight", EXPERTS, D_MODEL, random_numbers(EXPERTS * D_MODEL, 77, 0.4f));
    file_write(&file, words[0]);
    ffn_model_free(from);
    return 0;
}

static int stacks(char **words) {
    static const char *const w[] = {"w1", "w3", "w2"}, *const others[] = {"block_sparse_moe.gate.weight", "post_attention_layernorm.weight"};
    ffn_model_t *from;
    ffn_model_tensor_t about;
    file_t file = {0};
    char name[96];
    require(ffn_model_open(words[1], NULL, &from));
    for (int part = 0; part < 3; part++) {
        float *all = allocate(EXPERTS * D_FF * D_MODEL);
        for (int e = 0; e < EXPERTS; e++) {
            snprintf(name, sizeof name, "model.layers.1.block_sparse_moe.experts.%d.%s.weight", e, w[part]);
            float *numbers = tensor_read(from, name, &about);
            memcpy(all + e * D_FF * D_MODEL, numbers, D_FF * D_MODEL * sizeof *all);
            free(numbers);
        }
        snprintf(name, sizeof name, "all.%s", w[part]);
        file_add(&file, name, EXPERTS * about.shape[0], about.shape[1], all);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.1.%s", others[i]);
        float *numbers = tensor_read(from, name, &about);
        file_add(&file, i ? "norm" : "route", about.shape[0], about.ndim == 2 ? about.shape[1] : 0, numbers);
    }
    file_write(&file, words[0]);
    ffn_model_free(from);
    return 0;
}

static int extract(char **words) {
    ffn_model_t *from;
    ffn_model_tensor_t tensor;
    require(ffn_model_open(words[0], NULL, &from));
    float *numbers = tensor_read(from, words[1], &tensor);
    array_write(words[2], tensor.ndim, tensor.shape, numbers);
    ffn_model_free(from);
    return 0;
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    if (!strcmp(name, "model") && count == 3) return model(words + 2);
    if (!strcmp(name, "parts") && count == 4) return parts(words + 2);
    if (!strcmp(name, "experts") && count == 4) return experts(words + 2);
    if (!strcmp(name, "stacks") && count == 4) return stacks(words + 2);
    if (!strcmp(name, "random") && count >= 4 && count < 36) return random_array(count - 2, words + 2);
    if (!strcmp(name, "extract") && count == 5) return extract(words + 2);
    if (!strcmp(name, "compare") && count == 5) return compare(words + 2);
    if (!strcmp(name, "scale") && count == 5) return scale(words + 2);
    if (!strcmp(name, "slice") && count == 6) return slice(words + 2);
    if (!strcmp(name, "subtract") && count == 5) return subtract(words + 2);
    fail("see the top of helper.c");
}
