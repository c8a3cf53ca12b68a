/* What both tile layers share: the size of a tile and the form of a configuration. */
#ifndef ZENITH_TILES_H
#define ZENITH_TILES_H

#include <stdint.h>

#define TILES 8       /* registers */
#define TILE_ROWS 16  /* of a tile, at most */
#define TILE_BYTES 64 /* of a row, at most */

/* The operand of LDTILECFG. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

#endif
