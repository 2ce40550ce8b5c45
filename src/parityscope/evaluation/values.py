"""Arrays as ONNX Runtime's values and back; those of bfloat16 and float8, which numpy lacks, are arrays of ml_dtypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from parityscope.trace import numpy_dtype

# ONNX Runtime's names of element types that numpy lacks: (ml_dtypes name, TensorProto.DataType).
ML_TYPES = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}


def to_runtime(array: np.ndarray, declared: str) -> Any:
    """The array as an OrtValue; `declared` is the runtime's name of the type that is wanted, "" for the array's own.

    Raises:
        Exception: the runtime's interface for Python has no such type, such as those of four and two bits (its own errors).
    """
    import onnxruntime as ort

    array = np.asarray(array, order="C")  # not ascontiguousarray, which makes scalars 1-D
    if declared in ML_TYPES:
        bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, ML_TYPES[declared][1])
    return ort.OrtValue.ortvalue_from_numpy(array)


def from_runtime(value: Any) -> np.ndarray:
    """A tensor's elements: a view of the runtime's own memory, but of types that numpy lacks a copy."""
    kind = value.data_type()
    if kind in ML_TYPES:
        dtype = numpy_dtype(ML_TYPES[kind][0])
        shape = tuple(value.shape())
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(value._ortvalue.data_ptr(), nbytes), dtype).reshape(shape)  # noqa: SLF001 - the only way to these bytes
    array: np.ndarray = value.numpy()
    return array
