"""An OpenVINO model whose intermediate tensors are outputs; `openvino_trial.py` finds those that crash its compiler."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.openvino_ir.reading import read_openvino_file
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["mark_outputs", "try_marks"]

_HALVES = {"f16", "bf16"}


def try_marks(path: str, settings: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Compiles the model with `wanted` (tensor -> format) marked, for what becomes of the process; errors mean nothing here."""
    import openvino as ov

    core = ov.Core()
    with contextlib.suppress(RuntimeError, ParityError):
        source, _, _ = mark_outputs(read_openvino_file(core, Path(path)), wanted)
        core.compile_model(source, "CPU", dict(settings))


def mark_outputs(source: Any, wanted: Mapping[str, str]) -> tuple[Any, dict[str, int], list[Skip]]:
    """The model with the tensors `wanted` as outputs in their formats, their places behind its own outputs, and what it lacks."""
    declared = len(source.outputs)
    captured, missing = _add_outputs(source, list(wanted))
    types = {declared + place: wanted[name] for name, place in captured.items() if wanted[name] in _HALVES}
    return _read_as_stored(source, types), captured, missing


def _add_outputs(source: Any, wanted: Sequence[str]) -> tuple[dict[str, int], list[Skip]]:
    """Adds outputs for the tensors `wanted`; gives each one's position behind the declared outputs.

    Several ONNX values may be one OpenVINO tensor (an Identity that the reader removed): they share a position.
    """
    ports = {name: port for node in source.get_ordered_ops() for port in node.outputs() for name in port.get_names()}
    keys: dict[tuple[str, int], int] = {}
    positions: dict[str, int] = {}
    absent = []
    for name in wanted:
        if name not in ports:
            absent.append(Skip(what=f"tensor {name}", reason="OpenVINO folded it away while reading the model"))
            continue
        key = (ports[name].get_node().get_friendly_name(), ports[name].get_index())
        positions[name] = keys.setdefault(key, len(keys))
    source.add_outputs(list(keys))
    return positions, absent


def _read_as_stored(source: Any, types: Mapping[int, str]) -> Any:
    """The model whose outputs at the given places are given back in these formats, without a conversion.

    A result in float32 makes OpenVINO run everything between it and the product above it in float32 (measured; see
    docs/numerics.md): what one looks at would be another program.
    """
    import openvino as ov
    from openvino.preprocess import PrePostProcessor

    steps = PrePostProcessor(source)
    for place, stored in types.items():
        steps.output(place).tensor().set_element_type(getattr(ov.Type, stored))
    return steps.build() if types else source
