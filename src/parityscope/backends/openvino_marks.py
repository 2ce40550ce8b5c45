"""Intermediate tensors of an OpenVINO model as outputs: which of them can be marked, and how.

Marking a tensor may crash OpenVINO's compiler, and the process with it. So what is to be marked is first compiled in a process
that may die (`fork_server`), and again without one half or the other until the tensors are found that it dies of. A trial costs
a compilation and some milliseconds.

Measured: OpenVINO 2026.4.1 on x86-64 ends by SIGSEGV in `compile_model` when the input, or an inner tensor, of a layer
normalization that is written in single operators is an output too.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.openvino_ir.reading import read_openvino_file
from parityscope.backends.programs import signal_name
from parityscope.fork_server import death_elsewhere
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HALVES = {"f16", "bf16"}
_LIMIT_S = 600  # chosen, as for a child that loads a model: beyond this it hangs
_TRIALS = 64  # chosen: finds five tensors among 200; each costs a compilation


@functools.lru_cache(maxsize=16)
def bearable_marks(
    path: Path, digest: str, settings: tuple[tuple[str, Any], ...], wanted: tuple[tuple[str, str], ...]
) -> tuple[tuple[tuple[str, str], ...], tuple[Skip, ...]]:
    """Those of `wanted` (tensor, format) whose marking OpenVINO's compiler survives, and a Skip for each other."""
    del digest  # another file of the same path is another question
    deaths: dict[str, str] = {}
    stored = dict(wanted)

    def survives(names: Sequence[str]) -> bool:
        death = death_of_compiling(path, dict(settings), {name: stored[name] for name in names})
        deaths.update(dict.fromkeys(names, death) if death else {})
        return not death

    kept, lost = find_bearable_marks(list(stored), survives)
    skips = tuple(
        Skip(
            what=f"tensor {name}",
            reason=f"OpenVINO's compiler crashes ({deaths.get(name, 'not tried alone')}) when it is an output too",
            fix="another version of OpenVINO may not; observe=all marks every tensor, and changes the fusion",
        )
        for name in lost
    )
    return tuple((name, stored[name]) for name in kept), skips


def find_bearable_marks(names: Sequence[str], survives: Callable[[Sequence[str]], bool]) -> tuple[list[str], list[str]]:
    """Those of `names` that can be marked together, and the others; halves are tried until single ones are left.

    Whatever is kept was tried as it is returned. What was not tried when the trials are spent is among the others.
    """
    kept: list[str] = []
    lost: list[str] = []
    stack = [list(names)]
    used = 0
    while stack:
        block = stack.pop()
        if used >= _TRIALS:
            lost.extend(block)
            continue
        used += 1
        if survives([*kept, *block]):
            kept.extend(block)
        elif len(block) == 1:
            lost.extend(block)
        else:
            stack += [block[len(block) // 2 :], block[: len(block) // 2]]
    return kept, lost


def death_of_compiling(path: Path, settings: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    """How OpenVINO dies of compiling the model with `wanted` marked ("SIGSEGV"); "" where it does not.

    `wanted` maps tensors to the format in which they are read ("" leaves it to OpenVINO). An error that is raised is no death.
    """
    modules = ("openvino", __name__)
    number = death_elsewhere(_try_marks, (str(path), dict(settings), dict(wanted)), modules, _LIMIT_S)
    return signal_name(number) if number else ""


def _try_marks(path: str, settings: Mapping[str, Any], wanted: Mapping[str, str], _shared: int) -> bytes:
    """Compiles the model with `wanted` marked, for what becomes of the process; errors mean nothing here."""
    import resource  # there is none on Windows, where this module is imported all the same

    import openvino as ov

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    core = ov.Core()
    with contextlib.suppress(Exception):
        source, _, _ = mark_outputs(read_openvino_file(core, Path(path)), wanted)
        core.compile_model(source, "CPU", dict(settings))
    return b"survived"


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
