/* Walks the steps of a plan, see plan.h. */
#include "plan.h"

#include <math.h>
#include <string.h>

/* What the functions below share: a thread's view of a run. */
typedef struct work {
    const zn_kernels *k, *float_kernels; /* of one level; the same where values are floats */
    char *arena, *scratch;
    const zn_picture *in, *out;
    zn_team *team;
    int thread, threads;
    int from, to; /* rows of the step's grid to do now */
} work;

static int min_int(int a, int b) { return a < b ? a : b; }
static int max_int(int a, int b) { return a > b ? a : b; }

/* Values of activations as bytes. */
static ptrdiff_t bytes(const work *w, ptrdiff_t values) { return values * w->k->value_bytes; }

/* The pixel (y, 0) of a grid. */
static void *row_of(const work *w, const zn_grid *g, int y)
{
    return w->arena + bytes(w, g->at + y * g->stride % g->held * g->row);
}

/* The first pixel of the row of an activation with a border that is `away` from row y of a grid. */
static char *row_near(const work *w, const zn_grid *g, int y, int away)
{
    const int row = y * g->stride + away, inside = row >= 0 && row < g->height;
    return w->arena + bytes(w, g->at + (inside ? row % g->held : g->held) * g->row);
}

/* The next piece of scratch, from a cache line on; compiler.py adds these pieces up alike. */
static void *carve(char **scratch, ptrdiff_t size)
{
    void *piece = *scratch;
    *scratch += (size + ZN_LINE - 1) / ZN_LINE * ZN_LINE;
    return piece;
}

static ptrdiff_t floats(ptrdiff_t count) { return count * (ptrdiff_t)sizeof(float); }

/* --- pieces of steps ------------------------------------------------------------------------ */

/* Row y of an unshuffled picture, `pixel` floats apart, to out. */
static void load_floats(const work *w, const zn_step *s, int y, ptrdiff_t pixel, float *out)
{
    const zn_picture *p = w->in;
    const int first = min_int(y * s->load, p->rows - 1);
    w->k->load_picture((const char *)p->data + first * p->row_bytes, p->row_bytes, p->format,
                       p->channels, p->plane ? p->plane + first * p->plane_row : NULL, p->plane_row,
                       min_int(s->load, p->rows - first), p->width, s->load, out, s->width,
                       (int)pixel);
    if (s->clamp > 0)
        w->float_kernels->soft_clamp(out, out, s->width * pixel, s->clamp);
}

/* The same as it is stored, `pixel` values apart. A row of bf16 comes by way of `row`. */
static void load_row(const work *w, const zn_step *s, int y, ptrdiff_t pixel, float *row, void *out)
{
    if (w->k == w->float_kernels) {
        load_floats(w, s, y, pixel, out);
    } else if (s->split) {
        load_floats(w, s, y, pixel / 2, row);
        w->k->split(row, (int)pixel / 2, out, s->width);
    } else {
        load_floats(w, s, y, pixel, row);
        w->k->from_floats(row, out, s->width * pixel);
    }
}

static void store_row(const work *w, const zn_step *s, int y, const float *row)
{
    const zn_picture *p = w->out;
    const int to = y * s->store - p->skip_rows, skip = p->skip_columns / s->store;
    w->k->store_picture(row + skip * s->out.pixel, s->width - skip, (int)s->out.pixel, s->store,
                        (char *)p->data + to * p->row_bytes, p->row_bytes, p->format, p->channels,
                        min_int(s->store, p->rows - to), p->width);
}

/* The rows of the grid that a thread works on, of those that are wanted. */
static void share_rows(const work *w, const zn_step *s, int unit, int *begin, int *end)
{
    int from = w->from, to = w->to;
    if (s->store) {
        from = max_int(from, w->out->skip_rows / s->store);
        to = min_int(to, (w->out->skip_rows + w->out->rows + s->store - 1) / s->store);
    }
    zn_share(max_int(to - from + unit - 1, 0) / unit, w->thread, w->threads, begin, end);
    *begin = from + *begin * unit;
    *end = min_int(from + *end * unit, to);
}

static void clear_border(const work *w, const zn_border *b)
{
    const ptrdiff_t pixel = bytes(w, b->channels);
    int begin, end;
    zn_share(b->held + 1, w->thread, w->threads, &begin, &end);
    for (int y = begin; y < end; y++) {
        char *row = w->arena + bytes(w, b->at + y * b->row);
        if (y == b->held) {
            memset(row - pixel, 0, (size_t)((b->width + 2) * pixel));
        } else {
            memset(row - pixel, 0, (size_t)pixel);
            memset(row + b->width * pixel, 0, (size_t)pixel);
        }
    }
}

/* `to` is a row of activations, or of floats with float_out. */
static void multiply(const work *w, const zn_product *products, int count, const void *in,
                     ptrdiff_t in_pixel, const void *residual, ptrdiff_t residual_pixel, void *to,
                     int float_out, ptrdiff_t out_pixel, int pixels, int relu)
{
    for (int i = 0; i < count; i++) {
        const zn_product *p = products + i;
        const zn_gemm g = {
            .a = (const char *)in + bytes(w, p->in), .a_pixel = in_pixel,
            .segments = p->segments, .segment = p->segment, .depth = p->depth,
            .b = p->weight, .bias = p->bias,
            /* of a step with residual and several products each has columns of its own */
            .residual = residual ? (const char *)residual + bytes(w, p->out) : NULL,
            .residual_pixel = residual_pixel, .residual_block = p->residual_block,
            .out = (char *)to + (float_out ? floats(p->out) : bytes(w, p->out)),
            .float_out = float_out, .out_pixel = out_pixel, .block = p->block,
            .pixels = pixels, .columns = p->columns, .relu = relu,
        };
        (p->int16 ? w->k->gemm_int16 : w->k->gemm)(&g);
    }
}

static void add_rows(const work *w, const zn_step *s, int y)
{
    for (int i = 0; i < s->add_rows; i++) {
        char *out = (char *)row_of(w, &s->out, y) + bytes(w, i * s->out.row);
        const ptrdiff_t other = s->add_at + (y * s->add_rows + i) * s->add_row;
        w->k->add(out, w->arena + bytes(w, other), out, s->length);
    }
}

static int joined(const zn_grid *g, int width)
{
    return g->stride == 1 && g->held == g->height && g->row == width * g->pixel;
}

/* --- steps ---------------------------------------------------------------------------------- */

static void step_load(const work *w, const zn_step *s)
{
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++)
        load_row(w, s, y, s->out.pixel, (float *)(void *)w->scratch, row_of(w, &s->out, y));
}

static void step_gemm(const work *w, const zn_step *s)
{
    int begin, end;
    char *scratch = w->scratch;
    void *const loaded = carve(&scratch, s->load ? bytes(w, s->width * s->in.pixel) : 0);
    const int by_row = s->load && w->k != w->float_kernels; /* see load_row */
    float *const row = carve(&scratch, by_row ? floats(s->width * s->in.pixel) : 0);
    float *const stored = (float *)(void *)scratch;

    if (!s->load && !s->store && !s->add_rows && joined(&s->in, s->width) && joined(&s->out, s->width)
        && (!s->has_residual || joined(&s->residual, s->width))) {
        /* All rows are one: share pixels, in units that are whole blocks of the 2, 6 or 14 rows of most kernels. */
        const int pixels = (w->to - w->from) * s->width, unit = 84;
        zn_share((pixels + unit - 1) / unit, w->thread, w->threads, &begin, &end);
        begin *= unit;
        end = min_int(end * unit, pixels);
        if (begin < end) {
            const char *in = row_of(w, &s->in, w->from);
            const char *residual = s->has_residual ? row_of(w, &s->residual, w->from) : NULL;
            char *out = row_of(w, &s->out, w->from);
            multiply(w, s->products, s->product_count, in + bytes(w, begin * s->in.pixel), s->in.pixel,
                     residual ? residual + bytes(w, begin * s->residual.pixel) : NULL,
                     s->residual.pixel, out + bytes(w, begin * s->out.pixel), 0, s->out.pixel,
                     end - begin, s->relu);
        }
        return;
    }
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const void *residual = s->has_residual ? row_of(w, &s->residual, y) : NULL;
        void *out = s->store ? stored : row_of(w, &s->out, y);
        if (s->load)
            load_row(w, s, y, s->in.pixel, row, loaded);
        for (int i = 0; i < s->product_count; i++) {
            ptrdiff_t segment[ZN_MAX_SEGMENTS];
            zn_product p = s->products[i];
            if (!s->load) {
                const char *first = row_of(w, &s->in, y);
                for (int j = 0; j < p.segments; j++)
                    segment[j] = p.segment[j]
                        + (row_near(w, &s->in, y, p.segment_row[j]) - first) / w->k->value_bytes;
                p.segment = segment;
            }
            multiply(w, &p, 1, s->load ? loaded : row_of(w, &s->in, y), s->in.pixel, residual,
                     s->residual.pixel, out, s->store > 0, s->out.pixel, s->width, s->relu);
        }
        if (s->store)
            store_row(w, s, y, stored);
        add_rows(w, s, y);
    }
}

/* A run of a strip's tiles that lie side by side. */
typedef struct tile_run {
    int first, count; /* tiles of the strip */
    int y, x;         /* pixel of the first one */
} tile_run;

/* The run after the tiles of a strip that are `done`, of a grid `across` tiles wide. */
static tile_run next_run(int strip, int tiles, int done, int across)
{
    const int tx = (strip + done) % across;
    return (tile_run){done, min_int(tiles - done, across - tx), (strip + done) / across * ZN_WINOGRAD_OUT,
                      tx * ZN_WINOGRAD_OUT};
}

/* Tiles are taken in strips, row after row of them, whose transformed values and sums stay in the cache.
 * The step's product stands for 36: segment i is where the values i of a strip begin in scratch. */
static void step_winograd(const work *w, const zn_step *s)
{
    const zn_product *p = s->products;
    const int across = (s->width + ZN_WINOGRAD_OUT - 1) / ZN_WINOGRAD_OUT;
    const int from = w->from / ZN_WINOGRAD_OUT * across;
    const int to = (w->to + ZN_WINOGRAD_OUT - 1) / ZN_WINOGRAD_OUT * across, unit = ZN_WINOGRAD_UNIT;
    const ptrdiff_t depth = p->depth, columns = p->columns, value_plane = p->segment[1];
    const ptrdiff_t matrix = p->int16 ? floats((depth / 2 + 1) * columns) : bytes(w, depth * columns);
    const ptrdiff_t sum_plane = s->strip * columns + ZN_BLOCK;
    char *scratch = w->scratch;
    char *const values = carve(&scratch, bytes(w, p->segments * value_plane));
    float *const sums = (float *)(void *)scratch;
    int begin, end;

    zn_share((to - from + unit - 1) / unit, w->thread, w->threads, &begin, &end);
    begin = from + begin * unit;
    end = min_int(from + end * unit, to);
    for (int strip = begin; strip < end; strip += s->strip) {
        const int tiles = min_int(s->strip, end - strip);
        for (tile_run r = {0}; r.first + r.count < tiles;) {
            const void *row[ZN_WINOGRAD_IN];
            r = next_run(strip, tiles, r.first + r.count, across);
            for (int i = 0; i < ZN_WINOGRAD_IN; i++)
                row[i] = row_near(w, &s->in, r.y, i - 1) + bytes(w, (r.x - 1) * s->in.pixel);
            w->k->winograd_in(row, s->width + 2 - r.x, p->depth, r.count, values + bytes(w, r.first * depth),
                              value_plane);
        }
        for (int i = 0; i < p->segments; i++) {
            zn_product one = *p;
            one.in = p->segment[i];
            one.segments = 1;
            one.weight = (const char *)p->weight + i * matrix;
            one.bias = NULL;
            multiply(w, &one, 1, values, depth, NULL, 0, sums + i * sum_plane, 1, columns, tiles, 0);
        }
        for (tile_run r = {0}; r.first + r.count < tiles;) {
            r = next_run(strip, tiles, r.first + r.count, across);
            const char *residual = s->has_residual ? row_of(w, &s->residual, r.y) : NULL;
            char *out = row_of(w, &s->out, r.y);
            w->k->winograd_out(sums + r.first * columns, sum_plane, p->bias,
                               residual ? residual + bytes(w, r.x * s->residual.pixel) : NULL,
                               s->residual.row, out + bytes(w, r.x * s->out.pixel), s->out.row,
                               min_int(s->rows - r.y, ZN_WINOGRAD_OUT),
                               min_int(s->width - r.x, r.count * ZN_WINOGRAD_OUT), p->columns, s->relu);
        }
    }
}

static float get_value(const void *values, int is_float, ptrdiff_t i)
{
    float value;
    if (is_float)
        return ((const float *)values)[i];
    const uint32_t word = (uint32_t)((const uint16_t *)values)[i] << 16;
    memcpy(&value, &word, sizeof value);
    return value;
}

static void step_spectral(const work *w, const zn_step *s)
{
    const zn_spectral *m = s->spectral;
    const int n = m->size;
    const float least = s->relu ? 0 : -INFINITY;
    const int float_in = s->load > 0 || w->k == w->float_kernels;
    const int float_out = s->store > 0 || w->k == w->float_kernels;
    int begin, end;
    char *scratch = w->scratch;
    float *const loaded = carve(&scratch, s->load ? floats(s->width * s->in.pixel) : 0);
    float *const values = carve(&scratch, floats((ptrdiff_t)s->width * n));
    float *const results = carve(&scratch, floats(m->outputs));
    uint16_t *const rounded = carve(&scratch, bytes(w, m->outputs));
    float *const stored = (float *)(void *)scratch;

    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const void *in = s->load ? loaded : row_of(w, &s->in, y);
        void *out = s->store ? stored : row_of(w, &s->out, y);
        if (s->load)
            load_floats(w, s, y, s->in.pixel, loaded);
        for (ptrdiff_t x = 0; x < s->width; x++)
            for (int i = 0; i < n; i++)
                values[x * n + i] = m->gather[i] < 0 ? 0
                    : get_value(in, float_in, x * s->in.pixel + m->gather[i]) * m->in_scale[i];
        w->k->fwht(values, n, s->width, n);
        for (ptrdiff_t x = 0; x < s->width; x++) {
            const float *from = values + x * n;
            const ptrdiff_t to = x * s->out.pixel;
            for (int i = 0; i < m->outputs; i++) {
                float value = m->source[i] < 0 ? 0 : from[m->source[i]] * m->out_scale[i] + m->bias[i];
                results[i] = value < least ? least : value;
            }
            if (float_out) {
                for (int i = 0; i < m->outputs; i++)
                    ((float *)out)[to + m->scatter[i]] = results[i];
            } else {
                w->k->from_floats(results, rounded, m->outputs);
                for (int i = 0; i < m->outputs; i++)
                    ((uint16_t *)out)[to + m->scatter[i]] = rounded[i];
            }
        }
        if (s->store)
            store_row(w, s, y, stored);
        add_rows(w, s, y);
    }
}

/* Hidden rows [from, to) of a Zenith block to the rows of `u` from `slot` on, after the last of `slots` to
 * the first. */
static void compress(const work *w, const zn_step *s, int from, int to, char *u, int slot, int slots)
{
    const int whole = joined(&s->in, s->width), lane = s->mix->lane;
    const ptrdiff_t line_bytes = bytes(w, (ptrdiff_t)s->width * lane);
    for (int y = from; y < to;) {
        const int rows = whole ? min_int(to - y, slots - slot) : 1;
        multiply(w, s->products, s->product_count, row_of(w, &s->in, y), s->in.pixel, NULL, 0,
                 u + slot * line_bytes, 0, lane, rows * s->width, 1);
        y += rows;
        slot = (slot + rows) % slots;
    }
}

/* The place of hidden row y in each plane of `u`, of a band that begins at y0. */
static int slot_of(const zn_mix *m, int y, int y0)
{
    const int halo = m->eyes ? 1 : 0;
    return m->tile ? y - y0 + halo : y % (m->band + 2 * halo);
}

/* What plane g of the hidden rows [y0, y1) becomes, from `u` to `e`: spectral mixing, then a depthwise
 * convolution of the rows around, each where the block has it. */
static void mix_plane(const work *w, const zn_step *s, int g, int y0, int y1, const char *u, char *e)
{
    const zn_mix *m = s->mix;
    const zn_kernels *k = w->k;
    const int width = s->width, lane = m->lane, T = m->tile, spectral = T && m->spectral[g];
    const ptrdiff_t line = (ptrdiff_t)width * lane, line_bytes = bytes(w, line);

    if (spectral) {
        const int gates = (m->separable ? T : T * T) * lane * g;
        for (int y = y0; y < y1; y += T) {
            const char *from = u + slot_of(m, y, y0) * line_bytes;
            char *to = e + (y - y0) * line_bytes;
            const int rows = min_int(T, s->rows - y);
            if (m->separable)
                k->wht_tiles_separable(from, line, to, line, rows, width, lane, T,
                                       m->gate[0] + gates, m->threshold[0] + gates,
                                       m->gate[1] + gates, m->threshold[1] + gates);
            else
                k->wht_tiles(from, line, to, line, rows, width, lane, T,
                             m->gate[0] + gates, m->threshold[0] + gates);
        }
    }
    if (m->eyes)
        for (int y = y0; y < y1; y++) {
            char *to = e + (y - y0) * line_bytes;
            k->depthwise(y > 0 ? u + slot_of(m, y - 1, y0) * line_bytes : NULL,
                         u + slot_of(m, y, y0) * line_bytes,
                         y + 1 < s->rows ? u + slot_of(m, y + 1, y0) * line_bytes : NULL,
                         m->eyes_weight + g * 9 * lane, m->eyes_bias + g * lane,
                         spectral ? to : NULL, to, width, lane, 1);
        }
    else if (spectral)
        k->relu(e, e, (y1 - y0) * line);
    else
        memset(e, 0, (size_t)((y1 - y0) * line_bytes));
}

/* One Zenith block over the rows [begin, end). Hidden rows live in planes of `lane` channels: `u` holds rows
 * y0 - 1 .. y0 + band of each, `e` rows y0 .. y0 + band - 1. The last two rows of a band are the first two of
 * the next, so that within a thread none is computed twice: rows take turns in their places, but where tiles,
 * whose rows lie one after the other, make them move.
 *
 * A block may write where it reads. The hidden rows just outside of a thread's share are then
 * computed before anything is written; the lower one waits in one more row of each plane. */
static void step_mix(const work *w, const zn_step *s)
{
    const zn_mix *m = s->mix;
    const int width = s->width, lane = m->lane, halo = m->eyes ? 1 : 0, T = m->tile, slots = m->band + 2 * halo;
    const ptrdiff_t line_bytes = bytes(w, (ptrdiff_t)width * lane);
    const ptrdiff_t u_plane = (slots + halo) * line_bytes, e_plane = m->band * line_bytes;
    char *const u = w->scratch, *const e = u + m->planes * u_plane;
    char *const waiting = u + slots * line_bytes;
    const int out_joined = joined(&s->out, width) && joined(&s->residual, width);
    int begin, end, known;

    share_rows(w, s, T ? T : 1, &begin, &end);
    known = max_int(begin - halo, 0); /* hidden rows before this one are there */
    const int in_place = halo && s->in.at == s->out.at && w->threads > 1;
    if (in_place) {
        if (begin < end) {
            compress(w, s, known, begin, u, slot_of(m, known, begin), slots);
            known = begin;
            if (end < s->rows)
                compress(w, s, end, end + 1, waiting, 0, 1);
        }
        zn_team_barrier(w->team, NULL);
    }
    for (int y0 = begin; y0 < end; y0 += m->band) {
        const int y1 = min_int(y0 + m->band, end);
        const int need = min_int(y1 + halo, s->rows);
        const int wanted = in_place ? min_int(need, end) : need;

        if (T && y0 > begin && halo)
            for (int g = 0; g < m->planes; g++)
                memmove(u + g * u_plane, u + g * u_plane + m->band * line_bytes, (size_t)(2 * line_bytes));
        compress(w, s, known, wanted, u, slot_of(m, known, y0), slots);
        known = wanted;
        if (wanted < need)
            for (int g = 0; g < m->planes; g++)
                memcpy(u + g * u_plane + slot_of(m, end, y0) * line_bytes, waiting + g * u_plane,
                       (size_t)line_bytes);
        for (int g = 0; g < m->planes; g++)
            mix_plane(w, s, g, y0, y1, u + g * u_plane, e + g * e_plane);
        for (int y = y0; y < y1;) {
            const int rows = out_joined ? y1 - y : 1;
            multiply(w, s->expand, s->expand_count, e + (y - y0) * line_bytes, lane,
                     row_of(w, &s->residual, y), s->residual.pixel, row_of(w, &s->out, y), 0,
                     s->out.pixel, rows * width, s->relu);
            y += rows;
        }
    }
}

static ptrdiff_t moment_count(const zn_pool *p) { return (ptrdiff_t)(p->channels + 1) * p->channels; }

static void step_pool_moments(const work *w, const zn_step *s)
{
    const zn_pool *p = s->pool;
    double *const all = (double *)(void *)(w->arena + bytes(w, p->moments));
    float *const floats_of_row = (float *)(void *)w->scratch;
    int begin, end;
    share_rows(w, s, ZN_POOL_ROWS, &begin, &end);
    for (int y = begin; y < end; y++) {
        double *moments = all + y / ZN_POOL_ROWS * moment_count(p);
        const void *row = row_of(w, &s->in, y);
        if (w->k != w->float_kernels) {
            w->k->to_floats(row, floats_of_row, (ptrdiff_t)s->width * p->channels);
            row = floats_of_row;
        }
        if (y % ZN_POOL_ROWS == 0)
            memset(moments, 0, (size_t)moment_count(p) * sizeof *moments);
        w->k->moments(row, s->width, p->channels, moments);
    }
}

/* Moments are added in order, so that the result does not depend on the threads. */
static void step_pool_scale(const work *w, const zn_step *s)
{
    const zn_pool *p = s->pool;
    const int n = p->channels, size = p->wide / p->groups;
    const double count = (double)s->rows * s->width * size;
    double *moments = (double *)(void *)(w->arena + bytes(w, p->moments));
    float *scale = (float *)(void *)(w->arena + bytes(w, p->scale)), *shift = scale + p->wide;

    if (w->thread > 0)
        return;
    for (int part = 1; part < (s->rows + ZN_POOL_ROWS - 1) / ZN_POOL_ROWS; part++)
        for (ptrdiff_t i = 0; i < moment_count(p); i++)
            moments[i] += moments[part * moment_count(p) + i];
    for (int g = 0; g < p->groups; g++) {
        const float *linear = p->linear + (ptrdiff_t)g * n, *square = p->square + (ptrdiff_t)g * n * n;
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            sum += linear[i] * moments[(ptrdiff_t)n * n + i];
            for (int j = i; j < n; j++)
                squares += square[(ptrdiff_t)i * n + j] * moments[(ptrdiff_t)i * n + j];
        }
        const double mean = sum / count, variance = squares / count - mean * mean;
        const double inverse = 1 / sqrt((variance > 0 ? variance : 0) + p->epsilon);
        for (int c = g * size; c < (g + 1) * size; c++) {
            scale[c] = (float)(p->gamma[c] * inverse);
            shift[c] = (float)(p->beta[c] - mean * p->gamma[c] * inverse);
        }
    }
}

static void step_pool_apply(const work *w, const zn_step *s)
{
    const int wide = s->pool->wide;
    const float *scale = (const float *)(const void *)(w->arena + bytes(w, s->pool->scale));
    char *scratch = w->scratch;
    float *const row = carve(&scratch, floats((ptrdiff_t)s->width * wide));
    void *const normal = w->k == w->float_kernels ? (void *)row : scratch;
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        multiply(w, s->products, 1, row_of(w, &s->in, y), s->in.pixel, NULL, 0, row, 1, wide, s->width, 0);
        w->k->scale_shift(row, scale, scale + wide, normal, s->width, wide, 1);
        multiply(w, s->expand, 1, normal, wide, row_of(w, &s->residual, y), s->residual.pixel,
                 row_of(w, &s->out, y), 0, s->out.pixel, s->width, 0);
    }
}

static void step_elementwise(const work *w, const zn_step *s)
{
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const void *in = row_of(w, &s->in, y);
        void *out = row_of(w, &s->out, y);
        if (s->kind == ZN_RELU)
            w->k->relu(in, out, s->length);
        else if (s->kind == ZN_CLAMP)
            w->k->soft_clamp(in, out, s->length, s->clamp);
        else
            w->k->add(in, row_of(w, &s->residual, y), out, s->length);
    }
}

/* --- the walk ------------------------------------------------------------------------------- */

typedef struct run {
    const zn_plan *plan;
    char *arena;
    const zn_picture *in, *out;
    double *times;
    const zn_watch *watch;
    double all, done, next; /* work of the plan, of it done, and when to look */
    int ended[2];           /* whether to leave, behind barriers with even and with odd numbers */
} run;

/* About how long a row of a step takes, in multiplications. */
static double row_work(const zn_step *s)
{
    double values = 1;
    for (int i = 0; i < s->product_count + s->expand_count; i++) {
        const zn_product *p = i < s->product_count ? s->products + i : s->expand + i - s->product_count;
        values += (double)p->columns * p->segments * p->depth;
    }
    return values * s->width / (s->kind == ZN_WINOGRAD ? ZN_WINOGRAD_OUT * ZN_WINOGRAD_OUT : 1);
}

/* By the caller's thread, before the barrier behind a step: whether all are to leave after it. */
static int is_ended(run *r, double work)
{
    r->done += work;
    if (!r->watch || zn_now() < r->next)
        return 0;
    const int ended = r->watch->look(r->watch->context, r->done / r->all) != 0;
    r->next = zn_now() + r->watch->seconds;
    return ended;
}

static void do_step(const work *w, const zn_step *s)
{
    switch (s->kind) {
    case ZN_LOAD: step_load(w, s); break;
    case ZN_GEMM: step_gemm(w, s); break;
    case ZN_WINOGRAD: step_winograd(w, s); break;
    case ZN_SPECTRAL: step_spectral(w, s); break;
    case ZN_MIX: step_mix(w, s); break;
    case ZN_POOL_MOMENTS: step_pool_moments(w, s); break;
    case ZN_POOL_SCALE: step_pool_scale(w, s); break;
    case ZN_POOL_APPLY: step_pool_apply(w, s); break;
    default: step_elementwise(w, s);
    }
}

static void walk(void *context, zn_team *team, int thread, int threads)
{
    run *const r = context;
    work w = {
        .k = r->plan->kernels, .float_kernels = r->plan->float_kernels,
        .arena = r->arena,
        .scratch = r->arena + r->plan->scratch + thread * r->plan->scratch_bytes,
        .in = r->in, .out = r->out, .team = team, .thread = thread, .threads = threads,
    };
    double *const clock = r->times ? r->times + r->plan->count : NULL;
    double before = zn_now();
    int *ended = r->ended; /* another one behind the next barrier: who is late still reads this one */
    for (int i = 0; i < r->plan->count;) {
        const zn_step *first = r->plan->steps + i;
        const int steps = max_int(first->chain, 1), bands = max_int(first->bands, 1);
        for (int band = 0; band < bands; band++)
            for (const zn_step *s = first; s < first + steps; s++) {
                w.from = band > 0 ? min_int(band * s->band + s->lead, s->rows) : 0;
                w.to = band + 1 < bands ? min_int((band + 1) * s->band + s->lead, s->rows) : s->rows;
                if (band == 0 && s->border.held > 0)
                    clear_border(&w, &s->border);
                do_step(&w, s);
                if (thread == 0) {
                    *ended = is_ended(r, row_work(s) * (w.to - w.from));
                    if (zn_team_is_lost(team)) /* who looked forked */
                        return;
                }
                zn_team_barrier(team, clock);
                if (*ended)
                    return;
                ended = r->ended + (ended == r->ended);
                if (clock && thread == 0) {
                    r->times[s - r->plan->steps] += *clock - before;
                    before = *clock;
                }
            }
        i += steps;
    }
}

int zn_plan_run(const zn_plan *plan, void *arena, const zn_picture *in, const zn_picture *out,
                int threads, double *times, const zn_watch *watch)
{
    run r = {.plan = plan, .arena = arena, .in = in, .out = out, .times = times, .watch = watch,
             .next = watch ? zn_now() + watch->seconds : 0};
    for (int i = 0; i < plan->count; i++)
        r.all += row_work(plan->steps + i) * plan->steps[i].rows;
    return zn_team_run(threads, walk, &r);
}
