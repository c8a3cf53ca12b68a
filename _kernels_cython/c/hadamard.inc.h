/* Walsh-Hadamard kernels, see zenith.h. Part of storage.inc.h.
 *
 * In NHWC a transform over pixels needs no shuffles: lanes are channels, butterflies are adds
 * and subtractions of whole vectors. A tile is transformed VL channels at a time: rows from the
 * picture into a buffer in L1, then each column with everything that happens between the two
 * transforms while it is in registers, then rows back out. All transforms are unnormalised and
 * naturally ordered; each is its own inverse up to the factor T, which the gates carry. */

/* Row y of a tile, zero outside its `columns` pixels. */
static ZN_INLINE void STORED(load_pixels)(const int T, const VALUE *in, ptrdiff_t channels, int columns, vf *v)
{
    if (columns == T)
        for (int x = 0; x < T; x++)
            v[x] = s_load(in + x * channels);
    else
        for (int x = 0; x < T; x++)
            v[x] = x < columns ? s_load(in + x * channels) : v_set1(0);
}

static ZN_INLINE void STORED(store_pixels)(const int T, const vf *v, VALUE *out, ptrdiff_t channels, int columns)
{
    if (columns == T)
        for (int x = 0; x < T; x++)
            s_store(out + x * channels, v[x]);
    else
        for (int x = 0; x < T; x++)
            if (x < columns)
                s_store(out + x * channels, v[x]);
}

static ZN_INLINE void STORED(rows_in)(const int T, const VALUE *in, ptrdiff_t in_row, ptrdiff_t channels,
                              int rows, int columns, vf *tile)
{
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        STORED(load_pixels)(T, in + y * in_row, channels, columns, v);
        wht(T, v);
        for (int x = 0; x < T; x++)
            tile[y * T + x] = v[x];
    }
    for (int i = rows * T; i < T * T; i++)
        tile[i] = v_set1(0);
}

static ZN_INLINE void STORED(rows_out)(const int T, const vf *tile, VALUE *out, ptrdiff_t out_row,
                               ptrdiff_t channels, int rows, int columns)
{
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        for (int x = 0; x < T; x++)
            v[x] = tile[y * T + x];
        wht(T, v);
        STORED(store_pixels)(T, v, out + y * out_row, channels, columns);
    }
}

static ZN_INLINE void STORED(wht_tiles_T)(const int T, const VALUE *in, ptrdiff_t in_row, VALUE *out,
                                  ptrdiff_t out_row, int rows, int width, ptrdiff_t channels,
                                  const float *gate, const float *threshold)
{
    vf tile[MAX_TILE * MAX_TILE];
    FOR_TILES(
        STORED(rows_in)(T, in + x * channels + c, in_row, channels, rows, columns, tile);
        columns_gate(T, tile, gate + c, threshold ? threshold + c : NULL, channels);
        STORED(rows_out)(T, tile, out + x * channels + c, out_row, channels, rows, columns);
    )
}

static void STORED(wht_tiles)(const void *in, ptrdiff_t in_row, void *out, ptrdiff_t out_row, int rows,
                      int width, int channels, int T, const float *gate, const float *threshold)
{
    WITH_CONSTANT_T(STORED(wht_tiles_T), in, in_row, out, out_row, rows, width, channels, gate, threshold);
}

static ZN_INLINE void STORED(separable_tile)(const int T, const VALUE *in, ptrdiff_t in_row, VALUE *out,
                                     ptrdiff_t out_row, int rows, int columns, ptrdiff_t channels,
                                     const float *row_gate, const float *row_threshold,
                                     const float *column_gate, const float *column_threshold)
{
    vf tile[MAX_TILE * MAX_TILE];
    for (int y = 0; y < rows; y++) {
        vf v[MAX_TILE];
        STORED(load_pixels)(T, in + y * in_row, channels, columns, v);
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
                s_store(out + y * out_row + x * channels, v[y]);
    }
}

static ZN_INLINE void STORED(wht_tiles_separable_T)(const int T, const VALUE *in, ptrdiff_t in_row,
                                            VALUE *out, ptrdiff_t out_row, int rows, int width,
                                            ptrdiff_t channels, const float *row_gate,
                                            const float *row_threshold, const float *column_gate,
                                            const float *column_threshold)
{
    FOR_TILES(
        STORED(separable_tile)(T, in + x * channels + c, in_row, out + x * channels + c, out_row, rows,
                       columns, channels, row_gate + c, row_threshold ? row_threshold + c : NULL,
                       column_gate + c, column_threshold ? column_threshold + c : NULL);
    )
}

static void STORED(wht_tiles_separable)(const void *in, ptrdiff_t in_row, void *out, ptrdiff_t out_row,
                                int rows, int width, int channels, int T, const float *row_gate,
                                const float *row_threshold, const float *column_gate,
                                const float *column_threshold)
{
    WITH_CONSTANT_T(STORED(wht_tiles_separable_T), in, in_row, out, out_row, rows, width, channels, row_gate,
                    row_threshold, column_gate, column_threshold);
}
