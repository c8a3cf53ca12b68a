/* Tile layer of the level amx: the instructions. Described in tiles_emulated.h.
 *
 * Compilers disagree on what an intrinsic says about memory: those of GCC are assembly that names
 * an address but not what lies there. TILE_READS keeps writes to that memory before it. */
#ifndef ZENITH_TILES_AMX_H
#define ZENITH_TILES_AMX_H

#include <immintrin.h>

#include "tiles.h"

typedef struct tile_state {
    char none; /* the state is in registers of the CPU */
} tile_state;

#define TILE_READS(p) __asm__ __volatile__("" : : "r"(p) : "memory")

#define t_configure(state, config) \
    do { \
        (void)(state); \
        TILE_READS(config); \
        _tile_loadconfig(config); \
    } while (0)
#define t_release(state) ((void)(state), _tile_release())
#define t_zero(state, tile) \
    do { \
        (void)(state); \
        _tile_zero(tile); \
    } while (0)
#define t_load(state, tile, p, stride) \
    do { \
        (void)(state); \
        TILE_READS(p); \
        _tile_loadd(tile, p, stride); \
    } while (0)
#define t_store(state, tile, p, stride) \
    do { \
        (void)(state); \
        _tile_stored(tile, p, stride); \
    } while (0)
#define t_dot(state, sum, a, b) \
    do { \
        (void)(state); \
        _tile_dpbf16ps(sum, a, b); \
    } while (0)

#endif
