/* Runs every kernel of one level, in float32 and in bf16 without tiles, on the same made-up numbers and
 * prints a hash of what each writes, so that levels can be compared across CPUs, where one of them is
 * emulated: see test_levels.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zenith.h"

enum { VALUES = 1 << 17 };

static float numbers[4][VALUES]; /* in [-1, 1) */
static uint16_t halves[4][VALUES]; /* the same, rounded down to bf16 */
static double out[VALUES];

static void make_numbers(void)
{
    uint32_t state = 1;
    for (int which = 0; which < 4; which++)
        for (int i = 0; i < VALUES; i++) {
            state = state * 1664525u + 1013904223u;
            numbers[which][i] = (float)(int32_t)state / 2147483648.0f;
            uint32_t bits;
            memcpy(&bits, &numbers[which][i], sizeof bits);
            halves[which][i] = (uint16_t)(bits >> 16);
        }
}

static int16_t panels[VALUES];
static float levels_of_noise[VALUES];

/* Packed as gemm_int16 wants them: of a panel 16 factors, then pairs. */
static void make_panels(int count, int pairs)
{
    for (int p = 0; p < count; p++) {
        int16_t *at = panels + (ptrdiff_t)p * (pairs + 1) * 32;
        for (int i = 0; i < 16; i++) {
            const float factor = 1e-4f * (1 + (float)i / 16);
            memcpy(at + 2 * i, &factor, sizeof factor);
        }
        for (int i = 0; i < 32 * pairs; i++)
            at[32 + i] = (int16_t)(numbers[1][i + p] * 1000);
    }
}

static void print(const char *kernel, int storage, int size)
{
    const unsigned char *byte = (const unsigned char *)out;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof out; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    printf("%s %d %d %016llx\n", kernel, storage, size, (unsigned long long)hash);
    memset(out, 0, sizeof out);
}

int main(int arguments, char **argument)
{
    int level = ZN_LEVELS;
    while (arguments > 1 && level-- > 0)
        if (strcmp(zn_level_name(level), argument[1]) == 0)
            break;
    if (level < 0 || level == ZN_LEVELS || !zn_level_available(level)) {
        fprintf(stderr, "no such level here\n");
        return 2;
    }
    make_numbers();
    for (int i = 0; i < VALUES; i++)
        levels_of_noise[i] = numbers[3][i] > 0 ? 30 * numbers[3][i] : 0;
    for (int storage = ZN_FLOAT; storage <= ZN_BF16; storage++) {
        const zn_kernels *k = zn_kernels_for(level, storage);
        const void *x[4];
        for (int i = 0; i < 4; i++)
            x[i] = storage == ZN_FLOAT ? (const void *)numbers[i] : halves[i];
        const ptrdiff_t blocks[] = {0, 16, 32, 48, 64}, segments[] = {0, 5, 640};

        for (int pixels = 1; pixels < 24; pixels++) {
            const zn_gemm product = {
                .a = x[0], .a_pixel = 48, .segments = 3, .segment = segments, .depth = 2 + 2 * pixels,
                .b = x[1], .bias = pixels % 3 ? numbers[2] : NULL, .residual = pixels % 2 ? x[3] : NULL,
                .residual_pixel = 80, .out = out, .out_pixel = 80, .block = blocks, .pixels = pixels,
                .columns = 16 * (1 + pixels % 5), .relu = pixels % 4 == 0,
            };
            k->gemm(&product);
            print("gemm", storage, pixels);
        }
        for (int width = 1; width < 40; width += 3)
            for (int edge = 0; edge < 4; edge++) {
                k->depthwise(edge & 1 ? x[0] : NULL, x[1], edge & 2 ? x[2] : NULL, numbers[3],
                             edge ? numbers[2] : NULL, width % 2 ? x[3] : NULL, out, width, 48, edge == 3);
                print("depthwise", storage, width);
            }
        for (int tile = 4; tile <= 16; tile *= 2)
            for (int width = tile - 3; width < 3 * tile; width += 5) {
                const float *gate = numbers[1], *threshold = width % 2 ? numbers[0] : NULL;
                k->wht_tiles(x[2], 48 * 32, out, 48 * 32, tile - width % 3, width, 32, tile, gate, threshold);
                print("wht_tiles", storage, width);
                k->wht_tiles_separable(x[2], 48 * 32, out, 48 * 32, tile - width % 3, width, 32, tile, gate,
                                       threshold, gate + 1024, threshold);
                print("wht_tiles_separable", storage, width);
            }
        for (int tiles = 1; tiles < 6; tiles++) {
            const void *rows[ZN_WINOGRAD_IN];
            for (int i = 0; i < ZN_WINOGRAD_IN; i++)
                rows[i] = (const char *)x[0] + i * 2048 * k->value_bytes;
            k->winograd_in(rows, 4 * tiles + 1, 32, tiles, out, 32 * 6);
            print("winograd_in", storage, tiles);
            k->winograd_out(numbers[0], 32 * 6, tiles % 2 ? numbers[1] : NULL, tiles % 3 ? x[2] : NULL, 1024,
                            out, 1024, 4 - tiles % 2, 4 * tiles - 1, 32, tiles == 2);
            print("winograd_out", storage, tiles);
        }
        for (int n = 1; n < 70; n += 2) {
            k->relu(x[0], out, n);
            print("relu", storage, n);
            k->soft_clamp(x[1], out, n, 0.5f);
            print("soft_clamp", storage, n);
            k->add(x[0], x[1], out, n);
            print("add", storage, n);
            k->from_floats(numbers[3], out, n);
            print("from_floats", storage, n);
            k->to_floats(x[3], (float *)out, n);
            print("to_floats", storage, n);
            k->moments(numbers[0], n, n % 4 ? 48 : 16, out);
            print("moments", storage, n);
            k->scale_shift(numbers[0], numbers[1], numbers[2], out, n, 48, n % 3 == 0);
            print("scale_shift", storage, n);
        }
        for (int width = 1; width < 40; width += 4)
            for (int format = ZN_U8; format <= ZN_F32; format++) {
                static const int bytes[] = {1, 2, 4};
                const ptrdiff_t row = 3 * 48 * bytes[format];
                k->load_picture(format == ZN_F32 ? (void *)numbers[0] : halves[0], row, format, 3, numbers[1],
                                48, 1 + width % 2, width, 2, (float *)out, (width + 3) / 2, 16);
                print("load_picture", storage, width);
                k->store_picture(numbers[2], (width + 1) / 2, 16, 2, out, row, format, 3, 2, width);
                print("store_picture", storage, width);
            }
        for (int channels = 1; channels <= ZN_SPLIT_CHANNELS; channels += 9) {
            k->split(numbers[1], channels, (uint16_t *)out, 9);
            print("split", storage, channels);
        }
        for (int n = 1; n <= 512; n *= 2) {
            memcpy(out, numbers[3], 4096 * sizeof(float));
            k->fwht((float *)out, n + 3, 5, n);
            print("fwht", storage, n);
        }
        for (int pixels = 1; pixels < 24 && k->gemm_int16; pixels++) {
            const zn_gemm product = {
                .a = x[0], .a_pixel = 48, .segments = 3, .segment = segments, .depth = 2 + 2 * pixels,
                .b = panels, .bias = pixels % 3 ? numbers[2] : NULL, .residual = pixels % 2 ? x[3] : NULL,
                .residual_pixel = 80, .out = out, .out_pixel = 80, .block = blocks, .pixels = pixels,
                .columns = 16 * (1 + pixels % 5), .relu = pixels % 4 == 0,
            };
            make_panels(product.columns / 16, 3 * product.depth / 2);
            k->gemm_int16(&product);
            print("gemm_int16", storage, pixels);
        }
        for (int n = 1; n < 70; n += 3)
            for (int format = ZN_U8; format <= ZN_F32; format++) {
                memcpy(out, numbers[0], 3 * 70 * sizeof(float));
                k->add_change(out, format, numbers[1], 1000.0f / (1 + 999 * (format == ZN_F32)), n);
                print("add_change", storage, n);
                memcpy(out, numbers[2], 3 * 700 * sizeof(float));
                k->limit_change((float *)out, levels_of_noise, format, 0.03f, 0.5f, 9 * n);
                print("limit_change", storage, n);
                const ptrdiff_t pitch = 3 * 1024 * (format == ZN_F32 ? 4 : 1 + format);
                const void *shown = format == ZN_F32 ? (const void *)numbers[0] : halves[0];
                k->roughness(shown, pitch, format, 1 + n % 40, (float *)out);
                print("roughness", storage, n);
                k->count_clipped(shown, pitch, format, 1 + n % 8, 1 + 4 * n, (uint8_t *)out);
                print("count_clipped", storage, n);
                k->patches(shown, pitch, format, n % 3, 1 + n % 4, n, (float *)out, (float *)out + 65536);
                print("patches", storage, n);
                k->blend(numbers[0], numbers[1], 0.3f, (float *)out, n);
                print("blend", storage, n);
            }
        float *gradients = (float *)out;
        k->wht_tiles_backward(numbers[0], 32 * 32, numbers[1], 32 * 32, gradients, 32 * 32, 7, 21, 32, 8,
                              numbers[2], numbers[3], gradients + 65536, gradients + 131072);
        print("wht_tiles_backward", storage, 8);
    }
    return 0;
}
