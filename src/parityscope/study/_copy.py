"""A copy of an examination in which the reference does what was found of the deployment: what is left has other causes.

The candidate is a recording of what it gave on a few samples, its outputs and, where layers were captured, its tensors by the
reference's names. The reference runs on inputs, and as a model, that are changed by one correction after the other. So
whatever examines a case examines a copy in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, is_recording
from parityscope.backends.opening import open_target
from parityscope.backends.targets import RECORDED, plain_target
from parityscope.case import Sample, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.comparison.rows import make_aligner
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from parityscope.bench import Bench
    from parityscope.case import Case, Inputs, Model
    from parityscope.checks import Correction
    from parityscope.examination import Examination

Arrays = Mapping[str, np.ndarray]
# The place of a sample in the data set -> its inputs in the copy; None where there is no such sample.
Source = Callable[[int], Arrays | None]
# The position of a sample in the copy -> what the candidate gave, outputs and tensors.
Given = Callable[[int], Arrays]

_PRECISIONS = frozenset({"f32", "tf32", "f16", "bf16", "int8"})  # that a recording may declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A case with its targets, and what it was made of.

    `places` are its samples' places in the data set, `source` gives the inputs of any of them, `given` what the candidate gave
    on those of the copy. `norms` are the squared norms of the reference's outputs before anything was corrected, by name.
    `energy` is the squared error as it was measured, each output over its norm; None where it was not.
    """

    case: Case
    reference: Target
    candidate: Target
    places: tuple[int, ...]
    source: Source
    given: Given
    folder: Path
    norms: Mapping[str, float]
    energy: float | None = None


class _Lazily(Mapping[str, np.ndarray]):
    """Arrays that are read when they are asked for, one at a time."""

    def __init__(self, names: tuple[str, ...], read: Callable[[str], np.ndarray]) -> None:
        self._names = names
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def first_copy(known: Examination, bench: Bench, folder: Path) -> Copy:
    """The examination as it is, on the samples whose layers were captured, else on those of the bench.

    Raises:
        ParityError: a side cannot run, or the disk is full.
    """
    layers = known.layers
    outputs = [value.name for value in known.case.model.outputs]
    places = tuple(sorted(layers.candidate.samples)) if layers else bench.samples

    def given(position: int) -> Arrays:
        place = places[position]
        if layers is None:
            return bench.candidate(place)
        names = [
            name for name in (*outputs, *layers.statistics) if layers.candidate.has(place, known.names.get(name, name))
        ]
        return _Lazily(
            tuple(dict.fromkeys(names)), lambda name: layers.candidate.get(place, known.names.get(name, name))
        )

    def source(place: int) -> Arrays | None:
        return known.case.inputs.sample(place).arrays if place in known.case.inputs.indices else None

    reference = plain_target(known.reference) if is_recording(known.reference) else known.reference
    # What the deployment's inputs were is known by now, and used up if it was a cause.
    case = replace(known.case, inputs=_copy_inputs(known.case.inputs, places, source), own=None)
    precision = known.candidate.precision if known.candidate.precision in _PRECISIONS else ""
    copy = Copy(
        case=case,
        reference=reference,
        candidate=_record_candidate(given, outputs, len(places), folder / "candidate", precision),
        places=places,
        source=source,
        given=given,
        folder=folder,
        norms={},
    )
    found = _measure_energies(copy)
    norms = {name: norm for name, (_, norm) in found.items()}
    return replace(copy, norms=norms, energy=_over_norms(found, norms))


def correct_copy(copy: Copy, correction: Correction, number: int) -> Copy:
    """The copy with one more correction; `number` makes the names of its files.

    Raises:
        ParityError: the corrected model cannot be read, or the disk is full.
    """
    case, source, given, candidate = copy.case, copy.source, copy.given, copy.candidate
    if correction.inputs is not None:
        source = _change_source(copy.source, correction)
        case = replace(case, inputs=_copy_inputs(case.inputs, copy.places, source))
    if correction.model is not None:
        case = replace(case, model=_edit_model(case, correction, copy.folder / f"reference-{number}.onnx"))
    if correction.declared:
        reason = "granted, to see what it does not explain"
        case = replace(case, policy=replace(case.policy, declared=correction.declared, declared_reason=reason))
    found = replace(copy, case=case, source=source, energy=None)
    if correction.outputs is not None:
        given = _put_right(found, correction)
        folder = copy.folder / f"candidate-{number}"
        names = [value.name for value in case.model.outputs]
        candidate = _record_candidate(given, names, len(copy.places), folder, copy.candidate.precision)
    return replace(found, given=given, candidate=candidate)


def observe_copy(copy: Copy, number: int) -> Copy:
    """The copy whose candidate gives its tensors too, which takes as much of the disk as they do.

    Raises:
        ParityError: the disk is full.
    """
    folder = copy.folder / f"layers-{number}"
    names = list(copy.given(0)) if copy.places else []
    candidate = _record_candidate(copy.given, names, len(copy.places), folder, copy.candidate.precision)
    return replace(copy, candidate=candidate)


def energy_of(copy: Copy) -> float:
    """The squared error of the outputs, each over the squared norm that it had before anything was corrected.

    An element that is not finite on one side only, or is another infinity, counts as an error of the largest finite value
    of either side.

    Raises:
        ParityError: the reference cannot run.
    """
    return _over_norms(_measure_energies(copy), copy.norms) if copy.energy is None else copy.energy


def _over_norms(energies: Mapping[str, tuple[float, float]], norms: Mapping[str, float]) -> float:
    return sum(energy / (norms.get(name) or 1.0) for name, (energy, _) in energies.items())


def _measure_energies(copy: Copy) -> dict[str, tuple[float, float]]:
    """Squared error and squared norm of the reference, by output."""
    found: dict[str, tuple[float, float]] = {}
    align = make_aligner(copy.case.policy)
    outputs = [value.name for value in copy.case.model.outputs]
    with open_target(copy.case.model, copy.reference, Capture()) as session:
        for position, sample in enumerate(copy.case.inputs):
            held = copy.given(position)
            given = {name: held[name] for name in outputs if name in held}
            reference, candidate = align(session.run(sample), given)
            for name in outputs:
                if (
                    name in reference
                    and name in candidate
                    and reference[name].shape == candidate[name].shape
                    and reference[name].dtype.kind in "fiubV"
                ):
                    energy, norm = _squared_error(reference[name], candidate[name])
                    before = found.get(name, (0.0, 0.0))
                    found[name] = before[0] + energy, before[1] + norm
    return found


def _squared_error(reference: np.ndarray, candidate: np.ndarray) -> tuple[float, float]:
    mine, its = (np.asarray(side, np.float64).reshape(-1) for side in (reference, candidate))
    both = np.isfinite(mine) & np.isfinite(its)
    same = both | (mine == its) | (np.isnan(mine) & np.isnan(its))
    largest = max((float(np.abs(side[np.isfinite(side)]).max(initial=0.0)) for side in (mine, its)), default=0.0)
    lost = int((~same).sum()) * max(largest, 1.0) ** 2
    norm = float(np.square(mine[np.isfinite(mine)]).sum())
    return float(np.square(its[both] - mine[both]).sum()) + lost, norm


def _change_source(source: Source, correction: Correction) -> Source:
    def changed(place: int) -> Arrays | None:
        arrays = source(place)
        if arrays is None or correction.inputs is None:
            return arrays
        return correction.inputs(place, arrays, source(place - 1) if place else None)

    return changed


def _copy_inputs(inputs: Inputs, places: tuple[int, ...], source: Source) -> Inputs:
    def read(position: int) -> Sample:
        arrays = source(places[position])
        if arrays is None:
            raise IndexError(f"there is no sample {places[position]}")
        return Sample(index=position, name=f"sample {places[position]} of the data", arrays=arrays)

    return replace(inputs, indices=tuple(range(len(places))), read=read, skipped=())


def _edit_model(case: Case, correction: Correction, path: Path) -> Model:
    import onnx_ir as ir

    graph = case.model.graph()
    if correction.model is not None:
        correction.model(graph)
    outside = any(isinstance(value.const_value, ir.ExternalTensor) for value in graph.graph.initializers.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    ir.save(graph, path, external_data=f"{path.name}.data" if outside else None)
    return load_model(path)


def _put_right(copy: Copy, correction: Correction) -> Given:
    outputs = [value.name for value in copy.case.model.outputs]
    right: list[Arrays] = []
    with open_target(copy.case.model, copy.reference, Capture()) as session:
        for position, sample in enumerate(copy.case.inputs):
            held = copy.given(position)
            its = {name: held[name] for name in outputs if name in held}
            right.append(its if correction.outputs is None else correction.outputs(session.run(sample), its))

    def given(position: int) -> Arrays:
        held = copy.given(position)
        names = tuple(dict.fromkeys((*held, *right[position])))
        return _Lazily(names, lambda name: right[position][name] if name in right[position] else held[name])

    return given


def _record_candidate(given: Given, names: Sequence[str], samples: int, folder: Path, precision: str) -> Target:
    """What the candidate gave of `names`, as files that the backend for recordings reads."""
    for position in range(samples):
        held = given(position)
        chosen = tuple(name for name in names if name in held)
        write_npz(folder / "outputs" / f"{position:06d}.npz", _Lazily(chosen, held.__getitem__))
    options = (("pair", "order"), ("path", str(folder)))
    return Target(backend=RECORDED, precision=precision, options=options)
