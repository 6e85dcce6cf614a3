/* SPDX-License-Identifier: MIT
 * Looking at tensors: pieces of a fixed number of numbers in their logical order, whatever the strides, which threads take and whose sums are added up
 * in order. */
#include "core/health.h"

#include "base/checked.h"
#include "core/parallel.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 16, CHUNK = 1 << 10 };

/* The chunk of numbers from the logical index `first` on: in place where they lie together, else copied to `buffer`. */
static const float *chunk_of(const numbers_t *numbers, int64_t first, int64_t count, float *buffer) {
    int last = numbers->ndim - 1;
    int64_t row = first / numbers->shape[last], column = first % numbers->shape[last], step = numbers->stride[last];
    for (int64_t taken = 0; taken < count; row++, column = 0) {
        const char *at = numbers->data + column * step;
        int64_t run = minimum(count - taken, numbers->shape[last] - column), rest = row;
        for (int i = last - 1; i >= 0; rest /= numbers->shape[i--]) at += rest % numbers->shape[i] * numbers->stride[i];
        if (step == 4 && run == count) return (const float *)(const void *)at;
        for (int64_t j = 0; j < run; j++, at += step) memcpy(&buffer[taken + j], at, sizeof *buffer);
        taken += run;
    }
    return buffer;
}

typedef struct pieces {
    const training_table_t *kernels;
    const numbers_t *numbers, *after; /* after: NULL, or what the numbers became */
    survey_t *survey; /* one for each piece */
    double *moved;    /* likewise, with `after` */
} pieces_t;

static void look_at_piece(const pieces_t *pieces, int64_t piece) {
    float buffer[2][CHUNK];
    int64_t begin = piece * PIECE, end = minimum(pieces->numbers->count, begin + PIECE);
    survey_t survey = {0};
    double moved = 0;
    for (int64_t i = begin; i < end; i += CHUNK) {
        int64_t count = minimum(CHUNK, end - i);
        const float *numbers = chunk_of(pieces->numbers, i, count, buffer[0]);
        pieces->kernels->survey(count, numbers, &survey);
        if (pieces->after) moved += pieces->kernels->squared_distance(count, chunk_of(pieces->after, i, count, buffer[1]), numbers);
    }
    pieces->survey[piece] = survey;
    if (pieces->after) pieces->moved[piece] = moved;
}

static void look_at_pieces(void *data, int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; piece++) look_at_piece(data, piece);
}

static ffn_status_t look(ffn_context_t *context, pieces_t *pieces, survey_t *sum, double *moved) {
    int64_t count = (pieces->numbers->count + PIECE - 1) / PIECE;
    ffn_status_t status = ffni_context_scratch(context, (uint64_t)count * (sizeof *pieces->survey + sizeof *pieces->moved));
    if (status) return status;
    pieces->survey = (survey_t *)(void *)context->scratch;
    pieces->moved = (double *)(void *)(pieces->survey + count);
    ffni_parallel_rows(context, count, PIECE, look_at_pieces, pieces);
    *sum = (survey_t){0};
    *moved = 0;
    for (int64_t i = 0; i < count; i++) {
        const survey_t *piece = &pieces->survey[i];
        sum->squares += piece->squares;
        sum->zeros += piece->zeros;
        sum->non_finite += piece->non_finite;
        if (piece->largest > sum->largest) sum->largest = piece->largest;
        if (pieces->after) *moved += pieces->moved[i];
    }
    return FFN_OK;
}

ffn_status_t ffni_survey(ffn_context_t *context, const training_table_t *kernels, const numbers_t *numbers, survey_t *survey) {
    pieces_t pieces = {.kernels = kernels, .numbers = numbers};
    double moved;
    return look(context, &pieces, survey, &moved);
}

ffn_status_t ffni_movement(ffn_context_t *context, const training_table_t *kernels, const numbers_t *before, const numbers_t *after, double *moved,
                           double *weight) {
    pieces_t pieces = {.kernels = kernels, .numbers = before, .after = after};
    survey_t survey = {0};
    ffn_status_t status = look(context, &pieces, &survey, moved);
    *weight = survey.squares;
    return status;
}
