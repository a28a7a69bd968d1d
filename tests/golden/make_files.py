"""Writes files.h: small files made by NumPy and by the reference implementation of safetensors.

Needs numpy, ml_dtypes and safetensors. Run as: python3 make_files.py > files.h
"""

import io

import ml_dtypes
import numpy as np
import safetensors.numpy


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def emit(name, data):
    text = data.hex()
    lines = [text[i : i + 88] for i in range(0, len(text), 88)]
    print(f"inline constexpr const char* {name} =")
    print("\n".join(f'    "{line}"' for line in lines) + ";")


VALUES = [0, -1.5, 2, 3.25, -0.0, 65504]

print("// Written by make_files.py with NumPy and the reference safetensors: files as hex digits.")
print("#pragma once\n\nnamespace golden {\n")
for kind in ("f4", "f8", "f2"):
    emit(f"npy_{kind}", npy(np.array(VALUES, "<" + kind).reshape(2, 3)))
for kind in ("i4", "i8"):
    emit(f"npy_{kind}", npy(np.array([0, -1, 2, 3, -4, 2**31 - 1], "<" + kind).reshape(2, 3)))
emit("npy_b1", npy(np.array([[True, False, True], [False, False, True]])))
emit("npy_scalar", npy(np.array(2.5, "<f4")))
emit("npy_vector", npy(np.array([1, 2, 3], "<i4")))
emit("npy_empty", npy(np.zeros((2, 0, 3), "<f8")))
emit("npy_eight", npy(np.arange(4, dtype="<f4").reshape(1, 1, 2, 1, 1, 2, 1, 1)))
emit("npy_fortran", npy(np.asfortranarray(np.arange(24, dtype="<i4").reshape(2, 3, 4))))
emit("npy_version2", npy(np.arange(3, dtype="<f4"), (2, 0)))
emit("npy_version3", npy(np.arange(3, dtype="<f4"), (3, 0)))
emit("npy_big_endian", npy(np.arange(3, dtype=">f4")))
emit("npy_bytes", npy(np.arange(3, dtype="u1")))
emit("npy_fields", npy(np.zeros(2, [("a", "<f4"), ("b", "<i4")])))
emit("npy_bfloat16", npy(np.arange(3).astype(ml_dtypes.bfloat16)))

# In the order in which the reference implementation lays them out: wide elements first.
emit(
    "safetensors_all",
    safetensors.numpy.save(
        {
            "i": np.array([-1, 2**62], "<i8"),
            "d": np.array([[0.1], [-0.0]], "<f8"),
            "f": np.array(VALUES, "<f4").reshape(2, 3),
            "n": np.array(-7, "<i4"),
            "b": np.array([1, -2, 3]).astype(ml_dtypes.bfloat16),
            "h": np.array([1, -2, 65504], "<f2"),
            "t": np.array([True, False, True]),
        },
        {"format": "pt"},
    ),
)
emit(
    "safetensors_names",
    safetensors.numpy.save(
        {
            "": np.array([1], "<f4"),
            'q"\\/\n\x01': np.array([2], "<f4"),
            "\u00e9\u4e2d\U0001f600": np.array([3], "<f4"),
            "none": np.zeros((0, 4), "<f4"),
        },
        None,
    ),
)
emit("safetensors_empty", safetensors.numpy.save({}, None))
print("\n}  // namespace golden")
