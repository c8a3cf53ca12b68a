/* Depthwise 3x3 on one row, see zenith.h. Part of storage.inc.h.
 *
 * A strip of VL channels walks along the row with its nine weights in registers. Each input
 * column is loaded once and contributes to three outputs: the right column of the output before,
 * the centre of this one, the left column of the next. The row is cut into blocks short enough
 * that the second strip of a cache line still finds it in L1. */

static ZN_INLINE void STORED(depthwise_store)(vf sum, const VALUE *add, VALUE *out, ptrdiff_t at, int relu)
{
    if (add)
        sum = v_add(sum, s_load(add + at));
    if (relu)
        sum = v_max(v_set1(0), sum);
    s_store(out + at, sum);
}

/* Outputs [begin, end) of VL channels; all pointers stand at the first of these channels. */
static ZN_INLINE void STORED(depthwise_strip)(const int has_above, const int has_below, const VALUE *above,
                                      const VALUE *row, const VALUE *below, const float *weights,
                                      const float *bias, const VALUE *add, VALUE *out, int begin,
                                      int end, int width, ptrdiff_t channels, int relu)
{
    vf weight[9], in[3];
    for (int i = 0; i < 9; i++)
        weight[i] = v_load(weights + i * channels);
    const vf first = bias ? v_load(bias) : v_set1(0);
    vf done, centre = first, next;

#define LOAD_COLUMN(x) \
    do { \
        if (has_above) \
            in[0] = s_load(above + (x) * channels); \
        in[1] = s_load(row + (x) * channels); \
        if (has_below) \
            in[2] = s_load(below + (x) * channels); \
    } while (0)

    if (begin > 0) {
        LOAD_COLUMN(begin - 1);
        centre = depthwise_column(centre, has_above, has_below, in, weight, 0);
    }
    LOAD_COLUMN(begin);
    done = depthwise_column(centre, has_above, has_below, in, weight, 1);
    centre = depthwise_column(first, has_above, has_below, in, weight, 0);
    for (int x = begin + 1; x < end; x++) {
        LOAD_COLUMN(x);
        done = depthwise_column(done, has_above, has_below, in, weight, 2);
        STORED(depthwise_store)(done, add, out, (x - 1) * channels, relu);
        next = depthwise_column(first, has_above, has_below, in, weight, 0);
        done = depthwise_column(centre, has_above, has_below, in, weight, 1);
        centre = next;
    }
    if (end < width) {
        LOAD_COLUMN(end);
        done = depthwise_column(done, has_above, has_below, in, weight, 2);
    }
    STORED(depthwise_store)(done, add, out, (end - 1) * channels, relu);
#undef LOAD_COLUMN
}

static ZN_INLINE void STORED(depthwise_row)(const int has_above, const int has_below, const VALUE *above,
                                    const VALUE *row, const VALUE *below, const float *weight,
                                    const float *bias, const VALUE *add, VALUE *out, int width,
                                    int channels, int relu)
{
    for (int begin = 0; begin < width; begin += DEPTHWISE_BLOCK) {
        int end = width - begin > DEPTHWISE_BLOCK ? begin + DEPTHWISE_BLOCK : width;
        for (int c = 0; c < channels; c += VL)
            STORED(depthwise_strip)(has_above, has_below, has_above ? above + c : NULL, row + c,
                            has_below ? below + c : NULL, weight + c, bias ? bias + c : NULL,
                            add ? add + c : NULL, out + c, begin, end, width, channels, relu);
    }
}

static void STORED(depthwise)(const void *above, const void *row, const void *below,
                              const float *weight, const float *bias, const void *add, void *out,
                              int width, int channels, int relu)
{
    if (above && below)
        STORED(depthwise_row)(1, 1, above, row, below, weight, bias, add, out, width, channels, relu);
    else if (above)
        STORED(depthwise_row)(1, 0, above, row, below, weight, bias, add, out, width, channels, relu);
    else if (below)
        STORED(depthwise_row)(0, 1, above, row, below, weight, bias, add, out, width, channels, relu);
    else
        STORED(depthwise_row)(0, 0, above, row, below, weight, bias, add, out, width, channels, relu);
}
