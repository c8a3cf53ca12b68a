/* Walks the steps of a plan, see plan.h. */
#include "plan.h"

#include <math.h>
#include <string.h>

/* What the functions below share: a thread's view of a run. */
typedef struct work {
    const zn_kernels *k;
    float *arena, *scratch;
    const zn_picture *in, *out;
    int thread, threads;
} work;

static int min_int(int a, int b) { return a < b ? a : b; }
static int max_int(int a, int b) { return a > b ? a : b; }

static size_t bytes(ptrdiff_t floats) { return (size_t)floats * sizeof(float); }

/* --- pieces of steps ------------------------------------------------------------------------ */

/* Row y of an unshuffled picture, `pixel` floats apart, to out. */
static void load_row(const work *w, const zn_step *s, int y, ptrdiff_t pixel, float *out)
{
    const zn_picture *p = w->in;
    const int first = min_int(y * s->load, p->rows - 1);
    w->k->load_picture((const char *)p->data + first * p->row_bytes, p->row_bytes, p->format,
                       p->channels, p->plane ? p->plane + first * p->plane_row : NULL, p->plane_row,
                       p->plane != NULL, min_int(s->load, p->rows - first), p->width, s->load, out,
                       s->width, (int)pixel);
    if (s->clamp > 0)
        w->k->soft_clamp(out, out, s->width * pixel, s->clamp);
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
    int from = 0, to = s->rows;
    if (s->store) {
        from = w->out->skip_rows / s->store;
        to = min_int(to, (w->out->skip_rows + w->out->rows + s->store - 1) / s->store);
    }
    zn_share((to - from + unit - 1) / unit, w->thread, w->threads, begin, end);
    *begin = from + *begin * unit;
    *end = min_int(from + *end * unit, to);
}

static void clear_border(const work *w, const zn_border *b)
{
    int begin, end;
    zn_share(b->height + 2, w->thread, w->threads, &begin, &end);
    for (int y = begin - 1; y < end - 1; y++) {
        float *row = w->arena + b->at + y * b->row;
        if (y < 0 || y == b->height) {
            memset(row - b->channels, 0, bytes((ptrdiff_t)(b->width + 2) * b->channels));
        } else {
            memset(row - b->channels, 0, bytes(b->channels));
            memset(row + (ptrdiff_t)b->width * b->channels, 0, bytes(b->channels));
        }
    }
}

static void multiply(const work *w, const zn_product *products, int count, const float *in,
                     ptrdiff_t in_pixel, const float *residual, ptrdiff_t residual_pixel, float *out,
                     ptrdiff_t out_pixel, int pixels, int relu)
{
    for (int i = 0; i < count; i++) {
        const zn_product *p = products + i;
        const zn_gemm g = {
            .a = in + p->in, .a_pixel = in_pixel,
            .segments = p->segments, .segment = p->segment, .depth = p->depth,
            .b = p->weight, .bias = p->bias,
            /* of a step with residual and several products each has columns of its own */
            .residual = residual ? residual + p->out : NULL, .residual_pixel = residual_pixel,
            .out = out + p->out, .out_pixel = out_pixel, .block = p->block,
            .pixels = pixels, .columns = p->columns, .relu = relu,
        };
        w->k->gemm(&g);
    }
}

static void add_rows(const work *w, const zn_step *s, int y)
{
    for (int i = 0; i < s->add_rows; i++) {
        float *out = w->arena + s->out.at + y * s->out.row + i * s->add_out_row;
        w->k->add(out, w->arena + s->add_at + (y * s->add_rows + i) * s->add_row, out, s->add_length);
    }
}

static int joined(const zn_grid *g, int width) { return g->row == width * g->pixel; }

/* --- steps ---------------------------------------------------------------------------------- */

static void step_load(const work *w, const zn_step *s)
{
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++)
        load_row(w, s, y, s->out.pixel, w->arena + s->out.at + y * s->out.row);
}

static void step_gemm(const work *w, const zn_step *s)
{
    int begin, end;
    float *loaded = w->scratch;
    float *stored = loaded + (s->load ? (s->width * s->in.pixel + 15) / 16 * 16 : 0);

    if (!s->load && !s->store && !s->add_rows && joined(&s->in, s->width) && joined(&s->out, s->width)
        && (!s->has_residual || joined(&s->residual, s->width))) {
        /* All rows are one: share pixels, in units that suit every micro-kernel. */
        const int pixels = s->rows * s->width, unit = 84;
        zn_share((pixels + unit - 1) / unit, w->thread, w->threads, &begin, &end);
        begin *= unit;
        end = min_int(end * unit, pixels);
        if (begin < end)
            multiply(w, s->products, s->product_count, w->arena + s->in.at + begin * s->in.pixel,
                     s->in.pixel,
                     s->has_residual ? w->arena + s->residual.at + begin * s->residual.pixel : NULL,
                     s->residual.pixel, w->arena + s->out.at + begin * s->out.pixel, s->out.pixel,
                     end - begin, s->relu);
        return;
    }
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *in = w->arena + s->in.at + y * s->in.row;
        float *out = s->store ? stored : w->arena + s->out.at + y * s->out.row;
        if (s->load) {
            load_row(w, s, y, s->in.pixel, loaded);
            in = loaded;
        }
        multiply(w, s->products, s->product_count, in, s->in.pixel,
                 s->has_residual ? w->arena + s->residual.at + y * s->residual.row : NULL,
                 s->residual.pixel, out, s->out.pixel, s->width, s->relu);
        if (s->store)
            store_row(w, s, y, out);
        add_rows(w, s, y);
    }
}

static void step_spectral(const work *w, const zn_step *s)
{
    const zn_spectral *m = s->spectral;
    const int n = m->size;
    const float least = s->relu ? 0 : -INFINITY;
    int begin, end;
    float *loaded = w->scratch;
    float *values = loaded + (s->load ? (s->width * s->in.pixel + 15) / 16 * 16 : 0);
    float *stored = values + ((ptrdiff_t)s->width * n + 15) / 16 * 16;

    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *in = w->arena + s->in.at + y * s->in.row;
        float *out = s->store ? stored : w->arena + s->out.at + y * s->out.row;
        if (s->load) {
            load_row(w, s, y, s->in.pixel, loaded);
            in = loaded;
        }
        for (int x = 0; x < s->width; x++, in += s->in.pixel)
            for (int i = 0; i < n; i++)
                values[(ptrdiff_t)x * n + i] = m->gather[i] < 0 ? 0 : in[m->gather[i]] * m->in_scale[i];
        w->k->fwht(values, n, s->width, n);
        for (int x = 0; x < s->width; x++) {
            const float *from = values + (ptrdiff_t)x * n;
            float *to = out + x * s->out.pixel;
            for (int i = 0; i < m->outputs; i++) {
                float value = m->source[i] < 0 ? 0 : from[m->source[i]] * m->out_scale[i] + m->bias[i];
                to[m->scatter[i]] = value < least ? least : value;
            }
        }
        if (s->store)
            store_row(w, s, y, out);
        add_rows(w, s, y);
    }
}

/* One Zenith block over the rows [begin, end). Hidden rows live in planes of 16 channels:
 * `u` holds rows y0 - 1 .. y0 + band of each, `e` rows y0 .. y0 + band - 1. The last two rows of a
 * band are the first two of the next, so that within a thread none is computed twice. */
static void step_mix(const work *w, const zn_step *s)
{
    const zn_mix *m = s->mix;
    const zn_kernels *k = w->k;
    const int width = s->width, halo = m->eyes ? 1 : 0, T = m->tile;
    const ptrdiff_t line = (ptrdiff_t)width * ZN_BLOCK;
    const ptrdiff_t u_plane = (m->band + 2 * halo) * line, e_plane = m->band * line;
    float *const u = w->scratch, *const e = u + m->planes * u_plane;
    const int in_joined = joined(&s->in, width);
    const int out_joined = joined(&s->out, width) && joined(&s->residual, width);
    int begin, end, known;

    share_rows(w, s, T ? T : 1, &begin, &end);
    known = max_int(begin - halo, 0); /* hidden rows before this one are there */
    for (int y0 = begin; y0 < end; y0 += m->band) {
        const int y1 = min_int(y0 + m->band, end);
        const int need = min_int(y1 + halo, s->rows);
        float *const first = u + halo * line; /* row y0 of plane 0 */

        if (y0 > begin && halo)
            for (int g = 0; g < m->planes; g++)
                memmove(u + g * u_plane, u + g * u_plane + m->band * line, bytes(2 * line));
        while (known < need) {
            const int rows = in_joined ? need - known : 1;
            multiply(w, s->products, s->product_count,
                     w->arena + s->in.at + known * s->in.row, s->in.pixel, NULL, 0,
                     first + (known - y0) * line, ZN_BLOCK, rows * width, 1);
            known += rows;
        }
        for (int g = 0; g < m->planes; g++) {
            const float *u_g = first + g * u_plane;
            float *e_g = e + g * e_plane;
            const int spectral = T && m->spectral[g];
            if (spectral) {
                const int gates = (m->separable ? T : T * T) * ZN_BLOCK * g;
                for (int y = y0; y < y1; y += T) {
                    const float *from = u_g + (y - y0) * line;
                    float *to = e_g + (y - y0) * line;
                    const int rows = min_int(T, s->rows - y);
                    if (m->separable)
                        k->wht_tiles_separable(from, line, to, line, rows, width, ZN_BLOCK, T,
                                               m->gate[0] + gates, m->threshold[0] + gates,
                                               m->gate[1] + gates, m->threshold[1] + gates);
                    else
                        k->wht_tiles(from, line, to, line, rows, width, ZN_BLOCK, T,
                                     m->gate[0] + gates, m->threshold[0] + gates);
                }
            }
            if (m->eyes)
                for (int y = y0; y < y1; y++) {
                    const float *row = u_g + (y - y0) * line;
                    float *to = e_g + (y - y0) * line;
                    k->depthwise(y > 0 ? row - line : NULL, row, y + 1 < s->rows ? row + line : NULL,
                                 m->eyes_weight + g * 9 * ZN_BLOCK, m->eyes_bias + g * ZN_BLOCK,
                                 spectral ? to : NULL, to, width, ZN_BLOCK, 1);
                }
            else if (spectral)
                k->relu(e_g, e_g, (y1 - y0) * line);
            else
                memset(e_g, 0, bytes((y1 - y0) * line));
        }
        for (int y = y0; y < y1;) {
            const int rows = out_joined ? y1 - y : 1;
            multiply(w, s->expand, s->expand_count, e + (y - y0) * line, ZN_BLOCK,
                     w->arena + s->residual.at + y * s->residual.row, s->residual.pixel,
                     w->arena + s->out.at + y * s->out.row, s->out.pixel, rows * width, s->relu);
            y += rows;
        }
    }
}

static void step_pool_sums(const work *w, const zn_step *s)
{
    const int wide = s->pool->wide;
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        double *sums = (double *)(void *)(w->arena + s->pool->sums) + (ptrdiff_t)y * 2 * wide;
        multiply(w, s->products, 1, w->arena + s->in.at + y * s->in.row, s->in.pixel, NULL, 0, w->scratch,
                 wide, s->width, 0);
        memset(sums, 0, (size_t)(2 * wide) * sizeof *sums);
        w->k->channel_sums(w->scratch, s->width, wide, sums);
    }
}

static double square_root(double x)
{
    /* Newton's iteration, to need no libm; it converges from above and ends when it stops falling. */
    double root = x > 1 ? x : 1;
    for (;;) {
        double next = 0.5 * (root + x / root);
        if (!(next < root))
            return root;
        root = next;
    }
}

/* Rows are added in order, so that the result does not depend on the threads. */
static void step_pool_scale(const work *w, const zn_step *s)
{
    const zn_pool *p = s->pool;
    const double *sums = (const double *)(const void *)(w->arena + p->sums);
    float *scale = w->arena + p->scale, *shift = scale + p->wide;
    const int size = p->wide / p->groups;
    const double count = (double)s->rows * s->width * size;

    if (w->thread > 0)
        return;
    for (int g = 0; g < p->groups; g++) {
        double sum = 0, squares = 0;
        for (int y = 0; y < s->rows; y++)
            for (int c = g * size; c < (g + 1) * size; c++) {
                sum += sums[(ptrdiff_t)y * 2 * p->wide + c];
                squares += sums[(ptrdiff_t)y * 2 * p->wide + p->wide + c];
            }
        const double mean = sum / count, variance = squares / count - mean * mean;
        const double inverse = 1 / square_root((variance > 0 ? variance : 0) + p->epsilon);
        for (int c = g * size; c < (g + 1) * size; c++) {
            scale[c] = (float)(p->gamma[c] * inverse);
            shift[c] = (float)(p->beta[c] - mean * p->gamma[c] * inverse);
        }
    }
}

static void step_pool_apply(const work *w, const zn_step *s)
{
    const int wide = s->pool->wide;
    const float *scale = w->arena + s->pool->scale;
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        multiply(w, s->products, 1, w->arena + s->in.at + y * s->in.row, s->in.pixel, NULL, 0, w->scratch,
                 wide, s->width, 0);
        w->k->scale_shift(w->scratch, scale, scale + wide, w->scratch, s->width, wide, 1);
        multiply(w, s->expand, 1, w->scratch, wide, w->arena + s->residual.at + y * s->residual.row,
                 s->residual.pixel, w->arena + s->out.at + y * s->out.row, s->out.pixel, s->width, 0);
    }
}

static void step_elementwise(const work *w, const zn_step *s)
{
    int begin, end;
    share_rows(w, s, 1, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *in = w->arena + s->in.at + y * s->in.row;
        float *out = w->arena + s->out.at + y * s->out.row;
        if (s->kind == ZN_RELU)
            w->k->relu(in, out, s->length);
        else if (s->kind == ZN_CLAMP)
            w->k->soft_clamp(in, out, s->length, s->clamp);
        else
            w->k->add(in, w->arena + s->residual.at + y * s->residual.row, out, s->length);
    }
}

/* --- the walk ------------------------------------------------------------------------------- */

typedef struct run {
    const zn_plan *plan;
    float *arena;
    const zn_picture *in, *out;
    double *times;
} run;

static void walk(void *context, zn_team *team, int thread, int threads)
{
    const run *r = context;
    const work w = {
        .k = r->plan->kernels,
        .arena = r->arena,
        .scratch = r->arena + r->plan->scratch + thread * r->plan->scratch_floats,
        .in = r->in, .out = r->out, .thread = thread, .threads = threads,
    };
    if (r->times && thread == 0)
        r->times[0] = zn_now();
    for (int i = 0; i < r->plan->count; i++) {
        const zn_step *s = r->plan->steps + i;
        if (s->border.height > 0)
            clear_border(&w, &s->border);
        switch (s->kind) {
        case ZN_LOAD: step_load(&w, s); break;
        case ZN_GEMM: step_gemm(&w, s); break;
        case ZN_SPECTRAL: step_spectral(&w, s); break;
        case ZN_MIX: step_mix(&w, s); break;
        case ZN_POOL_SUMS: step_pool_sums(&w, s); break;
        case ZN_POOL_SCALE: step_pool_scale(&w, s); break;
        case ZN_POOL_APPLY: step_pool_apply(&w, s); break;
        default: step_elementwise(&w, s);
        }
        zn_team_barrier_timed(team, r->times ? r->times + i + 1 : NULL);
    }
}

int zn_plan_run(const zn_plan *plan, float *arena, const zn_picture *in, const zn_picture *out,
                int threads, double *times)
{
    run r = {.plan = plan, .arena = arena, .in = in, .out = out, .times = times};
    return zn_team_run(threads, walk, &r);
}
