#!/usr/bin/env python3
"""Prints why no CUDA card can be used here with CUDA 13, or an empty line if one can.

Asks the driver, which respects CUDA_VISIBLE_DEVICES, and needs nothing of ours. The scripts and CMake
ask it before they compile for CUDA.
"""

import ctypes


def why():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "libcuda.so.1 is not found: no NVIDIA driver"
    count, text = ctypes.c_int(0), ctypes.c_char_p()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status:
        cuda.cuGetErrorString(status, ctypes.byref(text))
        return f"the driver answers: {(text.value or b'an unknown error').decode()} ({status})"
    if not count.value:
        return "the driver knows no card"
    version = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if version.value < 13000:
        return (f"the driver serves CUDA up to {version.value // 1000}.{version.value % 1000 // 10}; "
                "CUDA 13 needs driver 580 or newer")
    return ""


if __name__ == "__main__":
    print(why())
