/* SPDX-License-Identifier: MIT */
#include "support/layout.h"

#include "support/test.h"

enum { GAP = 5 }; /* floats between the rows of LAYOUT_PADDED, and between matrices that a file would store apart */

const char *layout_name(layout_t layout)
{
    static const char *const names[LAYOUTS] = {"[out,in]",       "[in,out]",          "[gate;up]",           "[up;gate]",
                                               "gate,up rows",   "up,gate rows",      "[in,gate up]",        "[in,(gate,up)]",
                                               "padded rows",    "reversed rows",     "reversed",            "[in,out] reversed"};
    return names[layout];
}

/* A pair of equal matrices `distance` floats apart: the layouts that keep them apart. */
static int64_t apart(place_t one, int64_t size, place_t *gate, place_t *up)
{
    *gate = *up = one;
    up->base += size + GAP;
    return 2 * size + GAP;
}

int64_t layout_pair(layout_t layout, int64_t out, int64_t in, place_t *gate, place_t *up)
{
    int64_t size = out * in;
    switch (layout) {
    case LAYOUT_OUT_IN: return apart((place_t){0, in, 1}, size, gate, up);
    case LAYOUT_IN_OUT: return apart((place_t){0, 1, out}, size, gate, up);
    case LAYOUT_PADDED: return apart((place_t){0, in + GAP, 1}, out * (in + GAP), gate, up);
    case LAYOUT_REVERSED_ROWS: return apart((place_t){size - in, -in, 1}, size, gate, up);
    case LAYOUT_REVERSED: return apart((place_t){size - 1, -in, -1}, size, gate, up);
    case LAYOUT_IN_OUT_REVERSED: return apart((place_t){size - out, 1, -out}, size, gate, up);
    case LAYOUT_GATE_UP:
        *gate = (place_t){0, in, 1};
        *up = (place_t){size, in, 1};
        break;
    case LAYOUT_UP_GATE:
        *up = (place_t){0, in, 1};
        *gate = (place_t){size, in, 1};
        break;
    case LAYOUT_INTERLEAVED:
        *gate = (place_t){0, 2 * in, 1};
        *up = (place_t){in, 2 * in, 1};
        break;
    case LAYOUT_INTERLEAVED_UP:
        *up = (place_t){0, 2 * in, 1};
        *gate = (place_t){in, 2 * in, 1};
        break;
    case LAYOUT_IN_GATE_UP:
        *gate = (place_t){0, 1, 2 * out};
        *up = (place_t){out, 1, 2 * out};
        break;
    case LAYOUT_IN_INTERLEAVED:
        *gate = (place_t){0, 2, 2 * out};
        *up = (place_t){1, 2, 2 * out};
        break;
    case LAYOUTS: fail_msg("no layout");
    }
    return 2 * size;
}

int64_t layout_single(layout_t layout, int64_t out, int64_t in, place_t *place)
{
    place_t beside;
    return layout_pair(layout, out, in, &beside, place);
}

int64_t layout_bias_pair(layout_t layout, int64_t out, place_t *gate, place_t *up)
{
    *gate = (place_t){0, 1, 0};
    *up = (place_t){out, 1, 0};
    switch (layout) {
    case LAYOUT_UP_GATE:
        gate->base = out;
        up->base = 0;
        break;
    case LAYOUT_INTERLEAVED:
    case LAYOUT_IN_INTERLEAVED:
        *gate = (place_t){0, 2, 0};
        *up = (place_t){1, 2, 0};
        break;
    case LAYOUT_INTERLEAVED_UP:
        *gate = (place_t){1, 2, 0};
        *up = (place_t){0, 2, 0};
        break;
    case LAYOUT_REVERSED_ROWS:
    case LAYOUT_REVERSED:
        *gate = (place_t){out - 1, -1, 0};
        *up = (place_t){2 * out - 1, -1, 0};
        break;
    default: break;
    }
    return 2 * out;
}

void layout_store(const place_t *place, int64_t out, int64_t in, const float *plain, float *memory)
{
    for (int64_t j = 0; j < out; j++)
        for (int64_t i = 0; i < in; i++) memory[place->base + j * place->row + i * place->column] = plain[j * in + i];
}

void layout_load(const place_t *place, int64_t out, int64_t in, const float *memory, float *plain)
{
    for (int64_t j = 0; j < out; j++)
        for (int64_t i = 0; i < in; i++) plain[j * in + i] = memory[place->base + j * place->row + i * place->column];
}
