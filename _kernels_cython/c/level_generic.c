/* Shim: the kernels of the generic level: plain C, for every machine. */
#include "vector_generic.h"

#include "kernels.inc.h"

const zn_kernels *const zn_generic_kernels = level_kernels;
