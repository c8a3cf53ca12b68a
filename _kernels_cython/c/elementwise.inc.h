/* Elementwise kernels. Part of storage.inc.h. */

/* The last n % VL elements: through a padded vector, so that they see the same arithmetic. */
static ZN_INLINE vf STORED(load_some)(const VALUE *p, ptrdiff_t n)
{
    VALUE x[VL] = {0};
    memcpy(x, p, (size_t)n * sizeof *p);
    return s_load(x);
}

static ZN_INLINE void STORED(store_some)(VALUE *p, vf a, ptrdiff_t n)
{
    VALUE x[VL];
    s_store(x, a);
    memcpy(p, x, (size_t)n * sizeof *p);
}

static void STORED(relu)(const void *from, void *to, ptrdiff_t n)
{
    const VALUE *x = from;
    VALUE *out = to;
    const vf zero = v_set1(0);
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        s_store(out + i, v_max(zero, s_load(x + i)));
    if (i < n)
        STORED(store_some)(out + i, v_max(zero, STORED(load_some)(x + i, n - i)), n - i);
}

static void STORED(add)(const void *first, const void *second, void *to, ptrdiff_t n)
{
    const VALUE *x = first, *y = second;
    VALUE *out = to;
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        s_store(out + i, v_add(s_load(x + i), s_load(y + i)));
    if (i < n) {
        vf sum = v_add(STORED(load_some)(x + i, n - i), STORED(load_some)(y + i, n - i));
        STORED(store_some)(out + i, sum, n - i);
    }
}

static void STORED(soft_clamp)(const void *from, void *to, ptrdiff_t n, float limit)
{
    const VALUE *x = from;
    VALUE *out = to;
    const vf to_limit = v_set1(limit);
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        s_store(out + i, v_mul(tanh_vector(v_div(s_load(x + i), to_limit)), to_limit));
    if (i < n) {
        vf y = v_mul(tanh_vector(v_div(STORED(load_some)(x + i, n - i), to_limit)), to_limit);
        STORED(store_some)(out + i, y, n - i);
    }
}

static void STORED(scale_shift)(const float *x, const float *scale, const float *shift, void *to,
                                int pixels, int channels, int relu)
{
    VALUE *out = to;
    for (int p = 0; p < pixels; p++) {
        const ptrdiff_t at = (ptrdiff_t)p * channels;
        for (int c = 0; c < channels; c += VL) {
            vf y = v_fma(v_load(x + at + c), v_load(scale + c), v_load(shift + c));
            s_store(out + at + c, relu ? v_max(v_set1(0), y) : y);
        }
    }
}

static void STORED(to_floats)(const void *from, float *out, ptrdiff_t n)
{
    const VALUE *x = from;
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(out + i, s_load(x + i));
    if (i < n)
        store_some_float(out + i, STORED(load_some)(x + i, n - i), n - i);
}

static void STORED(from_floats)(const float *x, void *to, ptrdiff_t n)
{
    VALUE *out = to;
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        s_store(out + i, v_load(x + i));
    if (i < n)
        STORED(store_some)(out + i, load_some_float(x + i, n - i), n - i);
}
