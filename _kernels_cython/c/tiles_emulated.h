/* Tile layer, emulated: what the AMX instructions do, in plain C, for tests on every CPU.
 *
 * A tile layer is a type `tile_state` and six operations on it; gemm_tiles.inc.h uses nothing else.
 * The state belongs to a thread: registers of the CPU at level amx, a structure here. Numbers of
 * tiles are literals, since the instructions hold them.
 *
 *   t_configure(state, config)       LDTILECFG: rows and bytes of a row of each tile; clears all
 *   t_release(state)                 TILERELEASE: back to no configuration
 *   t_zero(state, tile)              TILEZERO
 *   t_load(state, tile, p, stride)   TILELOADD: rows `stride` bytes apart; 0 repeats one row
 *   t_store(state, tile, p, stride)  TILESTORED
 *   t_dot(state, sum, a, b)          TDPBF16PS: sum += a b, with pairs of bf16 along the depth
 *
 * The arithmetic is that of the instruction set reference (Intel 64 and IA-32 Architectures
 * Software Developer's Manual, volume 2, TDPBF16PS). For one element of the sum, two chains of
 * fused multiply-adds run over the rows of b, one of the even members of the pairs and one of the
 * odd ones. Both start from zero; at the end they are added to each other, and that to the element.
 * Every step rounds to nearest even, takes operands below 2^-126 for zero and makes such results
 * zero, whatever the control register says, and raises nothing.
 *
 * Where the CPU would raise an exception (tiles that do not fit each other, no configuration) this
 * aborts: no input can cause it, only a mistake in the code above. */
#ifndef ZENITH_TILES_EMULATED_H
#define ZENITH_TILES_EMULATED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tiles.h"

typedef struct tile_state {
    int configured;
    tile_config config;
    unsigned char data[TILES][TILE_ROWS][TILE_BYTES];
} tile_state;

#define TILE_CALL static __attribute__((noinline)) /* slow as it is, it may at least be small */

#define LEAST_NORMAL 1.17549435e-38f /* 2^-126 */

static void tile_require(int holds)
{
    if (!holds)
        abort();
}

TILE_CALL void t_configure(tile_state *state, const tile_config *config)
{
    tile_require(config->palette == 1 && config->start_row == 0);
    for (int i = 0; i < 14; i++)
        tile_require(config->reserved[i] == 0);
    for (int i = 0; i < 16; i++) {
        tile_require(config->rows[i] <= TILE_ROWS && config->row_bytes[i] <= TILE_BYTES);
        tile_require((config->rows[i] == 0) == (config->row_bytes[i] == 0));
        tile_require(i < TILES || config->rows[i] == 0);
    }
    memset(state, 0, sizeof *state);
    state->config = *config;
    state->configured = 1;
}

TILE_CALL void t_release(tile_state *state)
{
    memset(state, 0, sizeof *state);
}

static void tile_require_valid(const tile_state *state, int tile)
{
    tile_require(state->configured && state->config.rows[tile] > 0);
}

TILE_CALL void t_zero(tile_state *state, int tile)
{
    tile_require_valid(state, tile);
    memset(state->data[tile], 0, sizeof state->data[tile]);
}

TILE_CALL void t_load(tile_state *state, int tile, const void *p, ptrdiff_t stride)
{
    tile_require_valid(state, tile);
    memset(state->data[tile], 0, sizeof state->data[tile]);
    for (int row = 0; row < state->config.rows[tile]; row++)
        memcpy(state->data[tile][row], (const char *)p + row * stride, state->config.row_bytes[tile]);
}

TILE_CALL void t_store(tile_state *state, int tile, void *p, ptrdiff_t stride)
{
    tile_require_valid(state, tile);
    for (int row = 0; row < state->config.rows[tile]; row++)
        memcpy((char *)p + row * stride, state->data[tile][row], state->config.row_bytes[tile]);
}

static inline float tile_flush(float x)
{
    return x < LEAST_NORMAL && x > -LEAST_NORMAL ? x * 0.0f : x;
}

/* bf16 widened, small ones flushed to a zero of the same sign. */
static inline float tile_widen(uint32_t x)
{
    const uint32_t bits = (x & 0x7f80 ? x : x & 0x8000) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* a * b + c rounded once. The product is exact in double. Its sum is made odd where it is not
 * exact, after which rounding it again, to float, gives what one rounding would have given. */
TILE_CALL float tile_multiply_add(float a, float b, float c)
{
    const double product = (double)a * (double)b, addend = c;
    double sum = product + addend;
    const double of_product = sum - addend, of_addend = sum - of_product;
    const double error = (product - of_product) + (addend - of_addend);
    if (error < 0 || error > 0) { /* false where the sum is no number */
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (!(bits & 1))
            bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
        memcpy(&sum, &bits, sizeof sum);
    }
    /* what would round to less than 2^-126 if the exponent had no limit */
    if (sum < 0x1p-126 - 0x1p-151 && sum > -(0x1p-126 - 0x1p-151))
        return (float)(sum * 0.0);
    return (float)sum;
}

/* One step of the chains of a row: sum[i] += a * b[i]. A float32 product of bf16 is exact unless it
 * leaves the range of float32, so that a product and a sum are as good as a fused multiply-add; the
 * rare rest is computed again. */
static inline void tile_chain(float a, const float *b, float *sum)
{
    float quick[TILE_BYTES / 4];
    int usual = 1;
    for (int i = 0; i < TILE_BYTES / 4; i++) {
        const float product = a * b[i], size = product < 0 ? -product : product;
        const float total = sum[i] + product, length = total < 0 ? -total : total;
        quick[i] = total;
        usual &= (size >= LEAST_NORMAL) | (size == 0);
        usual &= (length >= LEAST_NORMAL) | (length == 0);
        usual &= (size <= 3.4e38f) & (length <= 3.4e38f);
    }
    if (usual)
        memcpy(sum, quick, sizeof quick);
    else
        for (int i = 0; i < TILE_BYTES / 4; i++)
            sum[i] = tile_multiply_add(a, b[i], sum[i]);
}

TILE_CALL void t_dot(tile_state *state, int sum, int a, int b)
{
    const tile_config *config = &state->config;
    float even[TILE_ROWS][TILE_BYTES / 4] = {{0}}, odd[TILE_ROWS][TILE_BYTES / 4] = {{0}};
    tile_require_valid(state, sum);
    tile_require_valid(state, a);
    tile_require_valid(state, b);
    tile_require(sum != a && sum != b && a != b);
    tile_require(config->row_bytes[sum] % 4 == 0 && config->row_bytes[a] % 4 == 0);
    tile_require(config->rows[a] == config->rows[sum] && config->row_bytes[b] == config->row_bytes[sum]);
    tile_require(config->rows[b] == config->row_bytes[a] / 4);
    for (int k = 0; k < config->rows[b]; k++) {
        uint32_t pairs[TILE_BYTES / 4];
        float low[TILE_BYTES / 4], high[TILE_BYTES / 4];
        memcpy(pairs, state->data[b][k], sizeof pairs);
        for (int n = 0; n < TILE_BYTES / 4; n++) {
            low[n] = tile_widen(pairs[n] & 0xffff);
            high[n] = tile_widen(pairs[n] >> 16);
        }
        for (int m = 0; m < config->rows[a]; m++) {
            uint32_t pair;
            memcpy(&pair, &state->data[a][m][4 * k], sizeof pair);
            tile_chain(tile_widen(pair & 0xffff), low, even[m]);
            tile_chain(tile_widen(pair >> 16), high, odd[m]);
        }
    }
    for (int m = 0; m < config->rows[sum]; m++) {
        float total[TILE_BYTES / 4];
        memcpy(total, state->data[sum][m], sizeof total);
        for (int n = 0; n < TILE_BYTES / 4; n++)
            total[n] = tile_flush(tile_flush(total[n]) + tile_flush(even[m][n] + odd[m][n]));
        memcpy(state->data[sum][m], total, sizeof total);
    }
}

#undef LEAST_NORMAL
#undef TILE_CALL

#endif
