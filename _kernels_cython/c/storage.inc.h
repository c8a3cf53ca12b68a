/* The kernels that read or write activations, for one way to store them. Included twice by
 * kernels.inc.h, with STORE_BF16 0 and 1. All arithmetic is float32: VALUE is only what lies in
 * memory, s_load widens VL of it to a vector and s_store rounds a vector to it.
 *
 * A word is the 32 bits that one lane of a matrix product takes from memory at a time: a float, or
 * two consecutive bf16 channels, of which s_multiply_add adds both products. */
#if STORE_BF16
#define VALUE uint16_t
#define STORED(name) name##_bf16
#define PER_WORD 2
#define s_load v_load_bf16
#define s_store v_store_bf16
#define s_multiply_add v_dot_bf16
#else
#define VALUE float
#define STORED(name) name##_float
#define PER_WORD 1
#define s_load v_load
#define s_store v_store
#define s_multiply_add v_fma
#endif

#include "elementwise.inc.h"
#define GEMM_INT16 0
#include "gemm.inc.h"
#if STORE_BF16
#include "gemm_tiles.inc.h"
#else
#define GEMM_INT16 1
#include "gemm.inc.h"
#include "gemm_int16.inc.h"
#endif
#include "depthwise.inc.h"
#include "hadamard.inc.h"
#include "winograd.inc.h"

#undef VALUE
#undef STORED
#undef PER_WORD
#undef s_load
#undef s_store
#undef s_multiply_add
#undef STORE_BF16
