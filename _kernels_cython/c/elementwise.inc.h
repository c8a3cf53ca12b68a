/* Elementwise kernels, channel sums and the one-dimensional FWHT. Part of kernels.inc.h. */

/* The last n % VL elements: through a padded vector, so that they see the same arithmetic. */
static ZN_INLINE vf load_some(const float *p, ptrdiff_t n)
{
    float x[VL] = {0};
    memcpy(x, p, (size_t)n * sizeof(float));
    return v_load(x);
}

static ZN_INLINE void store_some(float *p, vf a, ptrdiff_t n)
{
    float x[VL];
    v_store(x, a);
    memcpy(p, x, (size_t)n * sizeof(float));
}

static void relu(const float *x, float *out, ptrdiff_t n)
{
    const vf zero = v_set1(0);
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(out + i, v_max(zero, v_load(x + i)));
    if (i < n)
        store_some(out + i, v_max(zero, load_some(x + i, n - i)), n - i);
}

static void add(const float *x, const float *y, float *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(out + i, v_add(v_load(x + i), v_load(y + i)));
    if (i < n)
        store_some(out + i, v_add(load_some(x + i, n - i), load_some(y + i, n - i)), n - i);
}

/* tanh as x P(x^2) / Q(x^2), |x| limited to 9.01 where tanh rounds to 1. P and Q of degree 4 are a
 * least-maximum fit of tanh(x) / x, made for this file by reweighted least squares in double:
 * 2.1e-8 relative; evaluated in float below 4e-7. */
static ZN_INLINE vf tanh_vector(vf x)
{
    static const float p[5] = {0.99999997925f, 0.13380370561f, 3.4948098378e-3f,
                               2.0596254798e-5f, 1.3336823278e-8f};
    static const float q[5] = {1.0f, 0.46713685983f, 2.5874022088e-2f,
                               3.2843612799e-4f, 7.7692724926e-7f};
    x = v_min(v_set1(9.01f), v_max(v_set1(-9.01f), x));
    const vf z = v_mul(x, x);
    vf above = v_set1(p[4]), below = v_set1(q[4]);
    for (int i = 3; i >= 0; i--) {
        above = v_fma(above, z, v_set1(p[i]));
        below = v_fma(below, z, v_set1(q[i]));
    }
    const vf y = v_div(v_mul(x, above), below);
    return v_min(v_set1(1), v_max(v_set1(-1), y));
}

static void soft_clamp(const float *x, float *out, ptrdiff_t n, float limit)
{
    const vf to_limit = v_set1(limit);
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(out + i, v_mul(tanh_vector(v_div(v_load(x + i), to_limit)), to_limit));
    if (i < n) {
        vf y = v_mul(tanh_vector(v_div(load_some(x + i, n - i), to_limit)), to_limit);
        store_some(out + i, y, n - i);
    }
}

/* Plain C in double: the compiler vectorises it, and every level gives the same bits. */
static void channel_sums(const float *x, int pixels, int channels, double *sums)
{
    for (int c = 0; c < channels; c += ZN_BLOCK) {
        double sum[ZN_BLOCK], square[ZN_BLOCK];
        for (int i = 0; i < ZN_BLOCK; i++) {
            sum[i] = sums[c + i];
            square[i] = sums[channels + c + i];
        }
        for (int p = 0; p < pixels; p++) {
            const float *in = x + (ptrdiff_t)p * channels + c;
            for (int i = 0; i < ZN_BLOCK; i++) {
                const double value = in[i];
                sum[i] += value;
                square[i] += value * value;
            }
        }
        for (int i = 0; i < ZN_BLOCK; i++) {
            sums[c + i] = sum[i];
            sums[channels + c + i] = square[i];
        }
    }
}

static void scale_shift(const float *x, const float *scale, const float *shift, float *out,
                        int pixels, int channels, int relu)
{
    for (int p = 0; p < pixels; p++) {
        const ptrdiff_t at = (ptrdiff_t)p * channels;
        for (int c = 0; c < channels; c += VL) {
            vf y = v_fma(v_load(x + at + c), v_load(scale + c), v_load(shift + c));
            v_store(out + at + c, relu ? v_max(v_set1(0), y) : y);
        }
    }
}

/* Stages h = 1 .. VL / 2 inside vectors, then three stages a pass over groups of 8 vectors, and
 * what is left by two or one. Stages come in ascending order on every level, and consist of
 * additions only: all levels give the same bits. */
static ZN_INLINE void fwht_pass(const int radix, float *x, ptrdiff_t n, ptrdiff_t h)
{
    for (ptrdiff_t block = 0; block < n; block += radix * h)
        for (ptrdiff_t i = block; i < block + h; i += VL) {
            vf v[8];
            for (int j = 0; j < radix; j++)
                v[j] = v_load(x + i + j * h);
            if (radix == 8)
                wht_8(v);
            else if (radix == 4)
                wht_4(v);
            else
                butterfly(v, v + 1);
            for (int j = 0; j < radix; j++)
                v_store(x + i + j * h, v[j]);
        }
}

static void fwht_one(float *x, ptrdiff_t n)
{
    ptrdiff_t h = VL;
    if (n < VL) {
        for (h = 1; h < n; h *= 2)
            for (ptrdiff_t block = 0; block < n; block += 2 * h)
                for (ptrdiff_t i = block; i < block + h; i++) {
                    const float a = x[i], b = x[i + h];
                    x[i] = a + b;
                    x[i + h] = a - b;
                }
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += VL)
        v_store(x + i, v_hadamard(v_load(x + i)));
    for (; 8 * h <= n; h *= 8)
        fwht_pass(8, x, n, h);
    if (4 * h <= n)
        fwht_pass(4, x, n, h);
    else if (2 * h <= n)
        fwht_pass(2, x, n, h);
}

static void fwht(float *x, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < count; i++)
        fwht_one(x + i * stride, n);
}
