/* Walsh-Hadamard kernels, see zenith.h. Part of kernels.inc.h.
 *
 * In NHWC a transform over pixels needs no shuffles: lanes are channels, butterflies are adds
 * and subtractions of whole vectors. A tile is transformed VL channels at a time: rows from the
 * picture into a buffer in L1, then each column with everything that happens between the two
 * transforms while it is in registers, then rows back out. All transforms are unnormalised and
 * naturally ordered; each is its own inverse up to the factor T, which the gates carry. */

#define MAX_TILE 16

static ZN_INLINE void butterfly(vf *a, vf *b)
{
    vf sum = v_add(*a, *b);
    *b = v_sub(*a, *b);
    *a = sum;
}

static ZN_INLINE void wht_4(vf *v)
{
    butterfly(v, v + 1);
    butterfly(v + 2, v + 3);
    butterfly(v, v + 2);
    butterfly(v + 1, v + 3);
}

static ZN_INLINE void wht_8(vf *v)
{
    wht_4(v);
    wht_4(v + 4);
    butterfly(v, v + 4);
    butterfly(v + 1, v + 5);
    butterfly(v + 2, v + 6);
    butterfly(v + 3, v + 7);
}

static ZN_INLINE void wht_16(vf *v)
{
    wht_8(v);
    wht_8(v + 8);
    for (int i = 0; i < 8; i++)
        butterfly(v + i, v + i + 8);
}

static ZN_INLINE void wht(const int T, vf *v)
{
    if (T == 4)
        wht_4(v);
    else if (T == 8)
        wht_8(v);
    else
        wht_16(v);
}

/* sign(a) * max(|a| - t, 0) for t >= 0, as a minus a limited to [-t, t] */
static ZN_INLINE vf shrink(vf a, vf t)
{
    vf limited = v_min(t, v_max(v_sub(v_set1(0), t), a));
    return v_sub(a, limited);
}

/* Row y of a tile, zero outside its `columns` pixels. */
static ZN_INLINE void load_pixels(const int T, const float *in, ptrdiff_t channels, int columns, vf *v)
{
    if (columns == T)
        for (int x = 0; x < T; x++)
            v[x] = v_load(in + x * channels);
    else
        for (int x = 0; x < T; x++)
            v[x] = x < columns ? v_load(in + x * channels) : v_set1(0);
}

static ZN_INLINE void store_pixels(const int T, const vf *v, float *out, ptrdiff_t channels, int columns)
{
    if (columns == T)
        for (int x = 0; x < T; x++)
            v_store(out + x * channels, v[x]);
    else
        for (int x = 0; x < T; x++)
            if (x < columns)
                v_store(out + x * channels, v[x]);
}

static ZN_INLINE void rows_in(const int T, const float *in, ptrdiff_t in_row, ptrdiff_t channels,
                              int rows, int columns, vf *tile)
{
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        load_pixels(T, in + y * in_row, channels, columns, v);
        wht(T, v);
        for (int x = 0; x < T; x++)
            tile[y * T + x] = v[x];
    }
    for (int i = rows * T; i < T * T; i++)
        tile[i] = v_set1(0);
}

static ZN_INLINE void rows_out(const int T, const vf *tile, float *out, ptrdiff_t out_row,
                               ptrdiff_t channels, int rows, int columns)
{
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        for (int x = 0; x < T; x++)
            v[x] = tile[y * T + x];
        wht(T, v);
        store_pixels(T, v, out + y * out_row, channels, columns);
    }
}

/* The columns of a half transformed tile: WHT, gate, shrink, WHT. */
static ZN_INLINE void columns_gate(const int T, vf *tile, const float *gate, const float *threshold,
                                   ptrdiff_t channels)
{
    for (int x = 0; x < T; x++) {
        vf v[MAX_TILE];
        for (int y = 0; y < T; y++)
            v[y] = tile[y * T + x];
        wht(T, v);
        for (int y = 0; y < T; y++) {
            v[y] = v_mul(v[y], v_load(gate + (y * T + x) * channels));
            if (threshold)
                v[y] = shrink(v[y], v_load(threshold + (y * T + x) * channels));
        }
        wht(T, v);
        for (int y = 0; y < T; y++)
            tile[y * T + x] = v[y];
    }
}

/* Calls BODY for every VL channels of every tile of a row of tiles, with `c` the first channel,
 * `x` the first pixel and `columns` the pixels of the tile inside the picture. A cache line of
 * channels goes first along all tiles, so that its gates stay in L1. */
#define FOR_TILES(BODY) \
    for (int line = 0; line < channels; line += ZN_BLOCK) \
        for (int x = 0; x < width; x += T) { \
            const int columns = width - x < T ? width - x : T; \
            for (int c = line; c < line + ZN_BLOCK; c += VL) { \
                BODY \
            } \
        }

static ZN_INLINE void wht_tiles_T(const int T, const float *in, ptrdiff_t in_row, float *out,
                                  ptrdiff_t out_row, int rows, int width, ptrdiff_t channels,
                                  const float *gate, const float *threshold)
{
    vf tile[MAX_TILE * MAX_TILE];
    FOR_TILES(
        rows_in(T, in + x * channels + c, in_row, channels, rows, columns, tile);
        columns_gate(T, tile, gate + c, threshold ? threshold + c : NULL, channels);
        rows_out(T, tile, out + x * channels + c, out_row, channels, rows, columns);
    )
}

static void wht_tiles(const float *in, ptrdiff_t in_row, float *out, ptrdiff_t out_row, int rows,
                      int width, int channels, int T, const float *gate, const float *threshold)
{
    if (T == 4)
        wht_tiles_T(4, in, in_row, out, out_row, rows, width, channels, gate, threshold);
    else if (T == 8)
        wht_tiles_T(8, in, in_row, out, out_row, rows, width, channels, gate, threshold);
    else
        wht_tiles_T(16, in, in_row, out, out_row, rows, width, channels, gate, threshold);
}

/* WHT, gate, shrink, WHT on T vectors of the separable form; gate is [T][channels]. */
static ZN_INLINE void gate_vectors(const int T, vf *v, const float *gate, const float *threshold,
                                   ptrdiff_t channels)
{
    wht(T, v);
    for (int i = 0; i < T; i++) {
        v[i] = v_mul(v[i], v_load(gate + i * channels));
        if (threshold)
            v[i] = shrink(v[i], v_load(threshold + i * channels));
    }
    wht(T, v);
}

static ZN_INLINE void separable_tile(const int T, const float *in, ptrdiff_t in_row, float *out,
                                     ptrdiff_t out_row, int rows, int columns, ptrdiff_t channels,
                                     const float *row_gate, const float *row_threshold,
                                     const float *column_gate, const float *column_threshold)
{
    vf tile[MAX_TILE * MAX_TILE];
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        load_pixels(T, in + y * in_row, channels, columns, v);
        gate_vectors(T, v, row_gate, row_threshold, channels);
        for (int x = 0; x < T; x++)
            tile[y * T + x] = v[x];
    }
    for (int x = 0; x < columns; x++) {
        vf v[MAX_TILE];
        for (int y = 0; y < T; y++)
            v[y] = y < rows ? tile[y * T + x] : v_set1(0);
        gate_vectors(T, v, column_gate, column_threshold, channels);
        for (int y = 0; y < T; y++)
            if (y < rows)
                v_store(out + y * out_row + x * channels, v[y]);
    }
}

static ZN_INLINE void wht_tiles_separable_T(const int T, const float *in, ptrdiff_t in_row,
                                            float *out, ptrdiff_t out_row, int rows, int width,
                                            ptrdiff_t channels, const float *row_gate,
                                            const float *row_threshold, const float *column_gate,
                                            const float *column_threshold)
{
    FOR_TILES(
        separable_tile(T, in + x * channels + c, in_row, out + x * channels + c, out_row, rows,
                       columns, channels, row_gate + c, row_threshold ? row_threshold + c : NULL,
                       column_gate + c, column_threshold ? column_threshold + c : NULL);
    )
}

static void wht_tiles_separable(const float *in, ptrdiff_t in_row, float *out, ptrdiff_t out_row,
                                int rows, int width, int channels, int T, const float *row_gate,
                                const float *row_threshold, const float *column_gate,
                                const float *column_threshold)
{
    if (T == 4)
        wht_tiles_separable_T(4, in, in_row, out, out_row, rows, width, channels, row_gate,
                              row_threshold, column_gate, column_threshold);
    else if (T == 8)
        wht_tiles_separable_T(8, in, in_row, out, out_row, rows, width, channels, row_gate,
                              row_threshold, column_gate, column_threshold);
    else
        wht_tiles_separable_T(16, in, in_row, out, out_row, rows, width, channels, row_gate,
                              row_threshold, column_gate, column_threshold);
}

/* With X = WHT(in), P = gate * X, S = shrink(P, t), out = WHT(S) and WHT symmetric:
 *   dS = WHT(dout),  dP = dS where |P| > t,  dgate += dP * X,
 *   dt -= sign(P) * dP,  din = WHT(gate * dP). */
static ZN_INLINE void columns_backward(const int T, vf *in, vf *grad, const float *gate,
                                       const float *threshold, float *grad_gate,
                                       float *grad_threshold, ptrdiff_t channels)
{
    for (int x = 0; x < T; x++) {
        vf v[MAX_TILE];
        for (int y = 0; y < T; y++)
            v[y] = in[y * T + x];
        wht(T, v);
        for (int y = 0; y < T; y++)
            in[y * T + x] = v[y];
        for (int y = 0; y < T; y++)
            v[y] = grad[y * T + x];
        wht(T, v);
        for (int y = 0; y < T; y++) {
            const ptrdiff_t at = (y * T + x) * channels;
            const vf X = in[y * T + x], g = v_load(gate + at);
            vf dP = v[y];
            if (threshold) {
                const vf P = v_mul(g, X), t = v_load(threshold + at);
                const vf above = v_where_greater(P, t, dP);
                const vf below = v_where_greater(v_sub(v_set1(0), t), P, dP);
                v_store(grad_threshold + at,
                        v_add(v_load(grad_threshold + at), v_sub(below, above)));
                dP = v_add(above, below);
            }
            v_store(grad_gate + at, v_fma(dP, X, v_load(grad_gate + at)));
            v[y] = v_mul(g, dP);
        }
        wht(T, v);
        for (int y = 0; y < T; y++)
            grad[y * T + x] = v[y];
    }
}

static ZN_INLINE void wht_tiles_backward_T(const int T, const float *in, ptrdiff_t in_row,
                                           const float *grad_out, ptrdiff_t grad_row,
                                           float *grad_in, ptrdiff_t grad_in_row, int rows,
                                           int width, ptrdiff_t channels, const float *gate,
                                           const float *threshold, float *grad_gate,
                                           float *grad_threshold)
{
    vf tile[MAX_TILE * MAX_TILE], grad[MAX_TILE * MAX_TILE];
    FOR_TILES(
        rows_in(T, in + x * channels + c, in_row, channels, rows, columns, tile);
        rows_in(T, grad_out + x * channels + c, grad_row, channels, rows, columns, grad);
        columns_backward(T, tile, grad, gate + c, threshold ? threshold + c : NULL, grad_gate + c,
                         threshold ? grad_threshold + c : NULL, channels);
        rows_out(T, grad, grad_in + x * channels + c, grad_in_row, channels, rows, columns);
    )
}

static void wht_tiles_backward(const float *in, ptrdiff_t in_row, const float *grad_out,
                               ptrdiff_t grad_row, float *grad_in, ptrdiff_t grad_in_row, int rows,
                               int width, int channels, int T, const float *gate,
                               const float *threshold, float *grad_gate, float *grad_threshold)
{
    if (T == 4)
        wht_tiles_backward_T(4, in, in_row, grad_out, grad_row, grad_in, grad_in_row, rows, width,
                             channels, gate, threshold, grad_gate, grad_threshold);
    else if (T == 8)
        wht_tiles_backward_T(8, in, in_row, grad_out, grad_row, grad_in, grad_in_row, rows, width,
                             channels, gate, threshold, grad_gate, grad_threshold);
    else
        wht_tiles_backward_T(16, in, in_row, grad_out, grad_row, grad_in, grad_in_row, rows, width,
                             channels, gate, threshold, grad_gate, grad_threshold);
}
