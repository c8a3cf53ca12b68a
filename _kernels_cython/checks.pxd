# Checks of arguments for _ops.pyx, _plan.pyx and _pixels.pyx, compiled into each of them.
from zenith cimport ZN_F32, ZN_U8, ZN_U16


cdef inline int require(bint condition, str message) except -1:
    if not condition:
        raise ValueError(message)
    return 0


cdef inline int picture_format(array) except -1:
    """What the kernels call the type of a picture's values."""
    formats = {"uint8": ZN_U8, "uint16": ZN_U16, "float32": ZN_F32}
    name = str(getattr(array, "dtype", ""))  # which tells other orders of bytes, too
    if name not in formats:
        raise TypeError("a picture must be a numpy array of uint8, uint16 or float32")
    return formats[name]
