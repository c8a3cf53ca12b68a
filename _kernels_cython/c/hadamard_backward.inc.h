/* Gradients of wht_tiles, see zenith.h; for training, in float32 only. Part of kernels.inc.h. */

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
        rows_in_float(T, in + x * channels + c, in_row, channels, rows, columns, tile);
        rows_in_float(T, grad_out + x * channels + c, grad_row, channels, rows, columns, grad);
        columns_backward(T, tile, grad, gate + c, threshold ? threshold + c : NULL, grad_gate + c,
                         threshold ? grad_threshold + c : NULL, channels);
        rows_out_float(T, grad, grad_in + x * channels + c, grad_in_row, channels, rows, columns);
    )
}

static void wht_tiles_backward(const float *in, ptrdiff_t in_row, const float *grad_out,
                               ptrdiff_t grad_row, float *grad_in, ptrdiff_t grad_in_row, int rows,
                               int width, int channels, int T, const float *gate,
                               const float *threshold, float *grad_gate, float *grad_threshold)
{
    WITH_CONSTANT_T(wht_tiles_backward_T, in, in_row, grad_out, grad_row, grad_in, grad_in_row, rows, width,
                    channels, gate, threshold, grad_gate, grad_threshold);
}
