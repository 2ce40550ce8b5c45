"""Whether what a server tells of its model, and what it answers, is the model that is compared: names, types, shapes, version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.case import Model
    from parityscope.records import ValueInfo

__all__ = ["TYPES", "check_model", "check_version", "restore_declared_type"]

# The protocol's names of types; those that it lacks cannot be served.
TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "str": "BYTES",
}
_HALVES = {"FP16", "BF16"}
_FLOATS = {"float32", "float64"}


def check_model(model: Model, described: Mapping[str, Any], where: str) -> None:
    """Whether the server's model is this one, as far as its metadata tells."""
    inputs = {one["name"]: one for one in described.get("inputs", ())}
    outputs = {one["name"]: one for one in described.get("outputs", ())}
    missing = [value.name for value in model.inputs if value.name not in inputs]
    extra = sorted(set(inputs) - {value.name for value in model.inputs})
    unserved = [value.name for value in model.outputs if value.name not in outputs]
    if missing or extra or unserved:
        parts = [
            f"it has no input {', '.join(missing)}" if missing else "",
            f"it also takes {', '.join(extra)}" if extra else "",
            f"it gives no output {', '.join(unserved)}" if unserved else "",
        ]
        raise ParityError(
            f"the server's model is not this one: {'; '.join(part for part in parts if part)}",
            where=where,
            fix=f"it takes {', '.join(inputs)} and gives {', '.join(outputs)}: give the model that is served, or rename there",
        )
    for value in model.inputs:
        _check_one("input", value, inputs[value.name], where, halves=False)
    for value in model.outputs:
        _check_one("output", value, outputs[value.name], where, halves=True)


def _check_one(kind: str, value: ValueInfo, served: Mapping[str, Any], where: str, *, halves: bool) -> None:
    """One tensor's type and shape; an output may be a half where a float is declared."""
    wanted, has = TYPES.get(value.dtype, value.dtype), str(served["datatype"])
    narrowed = halves and has in _HALVES and value.dtype in _FLOATS
    if has != wanted and not narrowed:
        raise ParityError(
            f"{kind} {value.name} is {has} in the server and {wanted} in the model",
            where=where,
            fix="serve the model with the same types, or compare with the model that is served",
        )
    shape = [int(size) for size in served.get("shape", ())]
    if value.shape is None:
        return
    fits = len(shape) == len(value.shape) and all(
        size < 0 or not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, shape, strict=True)
    )
    if not fits:
        raise ParityError(
            f"{kind} {value.name} has shape {shape} in the server and {list(value.shape)} in the model",
            where=where,
            fix="in config.pbtxt, max_batch_size adds a dimension in front: set it to 0, or leave the batch out of dims",
        )


def check_version(answered: str, wanted: str, sample: str, where: str) -> None:
    """Whether the version that was asked, or that answered before, answered: a server may load another meanwhile."""
    if answered and wanted and answered != wanted:
        raise ParityError(
            f"version {answered} of the model answered sample {sample}, and not version {wanted}",
            where=where,
            fix=f"write version={wanted}, and keep the server from loading other versions meanwhile",
        )


def restore_declared_type(name: str, array: np.ndarray, served: str, declared: str, where: str) -> np.ndarray:
    """An output in the type that is declared for it; `served` is what the metadata said of it."""
    if served in _HALVES and declared in _FLOATS:
        return array.astype(declared)
    if declared in TYPES and declared not in {"bfloat16", "str"} and array.dtype.name != declared:
        raise ParityError(
            f"output {name} came as {array.dtype.name}, and the server's metadata says {served}",
            where=where,
            fix="serve the model with the types that its configuration declares",
        )
    return array
