"""A piece with fewer samples, smaller shapes and plainer values, as long as it shows the finding.

A size (rows, channels, places) is one number that stands at many places of a part: in the samples, the weights, the shapes that
Reshape reads, the groups of a convolution. All of these are cut down together, to the entries that differ most; where that makes
no model that runs, it is left as it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends.targets import with_option
from parityscope.case.cutting import write_graph
from parityscope.case.graph import constant_value
from parityscope.errors import ParityError
from parityscope.study.reduction.making import run_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from parityscope.case import Model
    from parityscope.study.reduction.records import Arrays, Piece
    from parityscope.study.reduction.trying import PieceTrials

_SIZES = 3  # of a part that are cut down, the one that most numbers depend on first; chosen
_KEPT = (1, 4)  # entries of a size
_DIGITS = 3
_SHAPE = 8  # integers at most in a constant that may say a shape


def fewer_samples(piece: Piece, trials: PieceTrials) -> Piece:
    """The piece with the first sample alone, if that shows the finding."""
    if len(piece.samples) < 2 or not trials.may_go_on():
        return piece
    one = replace(piece, samples=piece.samples[:1], answers=piece.answers and piece.answers[:1])
    return one if trials.shows(one, "samples", f"1 of {len(piece.samples)} samples") else piece


def smaller_shapes(piece: Piece, trials: PieceTrials, folder: Path) -> Piece:
    """The piece with the sizes of its samples and weights cut down, one after the other."""
    number = 0
    for size in _sizes_of(piece):
        ranked: list[int] = []
        for kept in _KEPT:
            if kept >= size or not trials.may_go_on():
                continue
            number += 1
            what = f"{kept} of {size} entries along each axis of {size}"
            try:
                ranked = ranked or _entries_by_difference(piece, size)
                smaller = _cut_down(piece, size, sorted(ranked[:kept]), folder / f"shapes-{number}")
                run_side(smaller, smaller.reference)
            except (ParityError, ValueError, IndexError) as error:
                told = error.problem if isinstance(error, ParityError) else str(error)
                trials.note("shapes", what, told)
                continue
            if trials.shows(smaller, "shapes", what):
                piece = smaller
                break
    return piece


def plainer_values(piece: Piece, trials: PieceTrials) -> Piece:
    """The piece whose samples have three significant digits, if that shows the finding: they can be read and typed."""
    floats = [name for name, array in piece.samples[0].items() if array.dtype.kind == "f"]
    if not floats or not trials.may_go_on():
        return piece
    plain = tuple(
        {name: _round_decimals(array) if name in floats else array for name, array in arrays.items()}
        for arrays in piece.samples
    )
    rounded = replace(piece, samples=plain)
    return rounded if trials.shows(rounded, "values", f"{_DIGITS} significant digits") else piece


def _round_decimals(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        size = np.floor(np.log10(np.abs(array.astype(np.float64))))
        step = 10.0 ** (size - _DIGITS + 1)
        plain = np.round(array / step) * step
    return np.where(np.isfinite(plain) & np.isfinite(array), plain, array).astype(array.dtype)


def _sizes_of(piece: Piece) -> list[int]:
    """The sizes above one of the first sample's axes, those first that most of its numbers and weights depend on."""
    weighed: Counter[int] = Counter()
    arrays = [*piece.samples[0].values(), *_weights_of_model(piece.model)]
    for array in arrays:
        for size in {size for size in array.shape if size > 1}:
            weighed[size] += array.size
    given = {size for array in piece.samples[0].values() for size in array.shape if size > 1}
    return [size for size, _ in weighed.most_common() if size in given][:_SIZES]


def _weights_of_model(model: Model) -> list[np.ndarray]:
    values = model.graph().graph.initializers.values()
    return [value.const_value.numpy() for value in values if value.const_value is not None]


def _entries_by_difference(piece: Piece, size: int) -> list[int]:
    """The entries along the axes of this size, those first at which both sides differ most."""
    total = np.zeros(size)
    reference, candidate = run_side(piece, piece.reference), run_side(piece, piece.candidate)
    for mine, its in zip(reference, candidate, strict=True):
        for name in mine.keys() & its.keys():
            if mine[name].shape != its[name].shape or mine[name].dtype.kind not in "fiu":
                continue
            apart = np.nan_to_num(
                np.abs(its[name].astype(np.float64) - mine[name].astype(np.float64)), nan=1.0, posinf=1.0
            )
            for axis, length in enumerate(apart.shape):
                if length == size:
                    total += apart.sum(axis=tuple(other for other in range(apart.ndim) if other != axis))
    return [int(entry) for entry in np.argsort(-total, kind="stable")]


def _cut_down(piece: Piece, size: int, entries: Sequence[int], folder: Path) -> Piece:
    """The piece in which every axis of this size has these entries only, in both files."""
    samples = tuple(
        {name: _take_entries(array, size, entries) for name, array in arrays.items()} for arrays in piece.samples
    )
    model = _model_cut_down(piece.model, size, entries, folder / "model.onnx", samples[0])
    candidate = piece.candidate
    if own := candidate.option("model"):
        from parityscope.case import load_model

        its = _model_cut_down(load_model(Path(own)), size, entries, folder / "candidate.onnx", samples[0])
        candidate = with_option(candidate, "model", str(its.path))
    return replace(piece, model=model, candidate=candidate, samples=samples)


def _take_entries(array: np.ndarray, size: int, entries: Sequence[int]) -> np.ndarray:
    for axis, length in enumerate(array.shape):
        if length == size:
            array = np.take(array, entries, axis=axis)
    return np.ascontiguousarray(array)


def _model_cut_down(model: Model, size: int, entries: Sequence[int], path: Path, sample: Arrays) -> Model:
    import onnx_ir as ir

    whole = model.graph()
    for value in whole.graph.inputs:
        value.shape = ir.Shape(sample[str(value.name)].shape)
    for value in whole.graph.outputs:
        value.shape = None if value.shape is None else ir.Shape([None] * value.shape.rank())
    for value in whole.graph.initializers.values():
        if value.const_value is not None:
            value.const_value = _tensor_cut_down(value.const_value, size, entries)
            value.shape = ir.Shape(value.const_value.shape.numpy())
    for node in whole.graph:
        held = constant_value(node.outputs[0]) if node.op_type == "Constant" else None
        if held is not None:
            node.attributes.clear()
            node.attributes["value"] = ir.AttrTensor("value", _tensor_cut_down(held, size, entries))
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.INT and name == "group" and attribute.value == size:
                node.attributes[name] = ir.AttrInt64(name, len(entries))
    return write_graph(whole, path)


def _tensor_cut_down(tensor: ir.TensorProtocol, size: int, entries: Sequence[int]) -> ir.TensorProtocol:
    import onnx_ir as ir

    array = tensor.numpy()
    smaller = _take_entries(array, size, entries)
    if smaller.dtype == np.int64 and smaller.ndim == 1 and smaller.size <= _SHAPE:
        smaller = np.where(smaller == size, len(entries), smaller)
    return ir.tensor(smaller, name=tensor.name)
