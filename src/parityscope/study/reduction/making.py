"""Pieces of an examined model: a region of both sides' graphs, with the values that enter it there as its inputs.

The files of a piece, as a bug report wants them: models, inputs, what is expected, what is given.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture, backend_named
from parityscope.backends.opening import model_of, open_target
from parityscope.backends.recording import RecordingRequest, observable_tensors, record_trace
from parityscope.backends.targets import plain_target, with_option, without_option
from parityscope.case.extracting import extract_part
from parityscope.case.formats.npz import write_members
from parityscope.case.graph import computing_nodes
from parityscope.case.intake import external_files, read_message
from parityscope.light_dataclasses import dataclass, field
from parityscope.records import Policy, Target
from parityscope.study.reduction.records import Piece
from parityscope.study.reduction.region import Graphs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parityscope.case import Model
    from parityscope.examination import Examination
    from parityscope.study.reduction.records import Arrays, Reduced
    from parityscope.study.reduction.region import PartBorders

_WIDE = np.dtype(np.float32)


@dataclass(slots=True, kw_only=True)
class PieceSource:
    """What pieces are made of. `places` are the samples used, the one that shows most first.

    `recorded` says that the candidate cannot be run on other inputs: then both sides' values are those that it recorded.
    """

    known: Examination
    reference: Target
    graphs: Graphs
    own: Model | None
    recorded: bool
    places: tuple[int, ...]
    folder: Path
    values: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    made: int = 0

    def whole(self) -> Piece:
        """The whole model on these samples, as it was examined."""
        case = self.known.case
        names = [value.name for value in case.model.outputs]
        return Piece(
            model=case.model,
            reference=self.reference,
            candidate=self.known.candidate,
            samples=tuple(case.inputs.sample(place).arrays for place in self.places),
            policy=case.policy,
            nodes=len(self.graphs.nodes),
            answers=self._answers((*names, *self.graphs.names)) if self.recorded else None,
        )

    def piece(self, cut: PartBorders) -> Piece:
        """The model between the borders of `cut`, with what enters there as its samples.

        Raises:
            ParityError: a side cannot be cut there, or the reference cannot be run.
        """
        case, candidate = self.known.case, self.known.candidate
        self.made += 1
        home = self.folder / f"piece-{self.made}"
        self._fetch((*cut.entering, *cut.leaving))
        first = {name: self.values[self.places[0], name] for name in (*cut.entering, *cut.leaving)}
        samples = [{name: self.values[place, name] for name in cut.entering} for place in self.places]
        alike = [
            one for one in samples if _shapes_of_arrays(one) == _shapes_of_arrays(samples[0])
        ]  # a part has static shapes
        model = extract_part(
            case.model,
            {name: (name, first[name]) for name in cut.entering},
            {name: (name, first[name]) for name in cut.leaving},
            home / "model.onnx",
        )
        if self.own is not None:
            its = self.graphs.names
            own = extract_part(
                self.own,
                {its.get(name, name): (name, first[name]) for name in cut.entering},
                {its[name]: (name, first[name]) for name in cut.leaving},
                home / "candidate.onnx",
            )
            candidate = with_option(candidate, "model", str(own.path))
        inside = [name for name in model.sites if name in self.graphs.names]
        reason = case.policy.declared_reason if case.policy.declared else Policy().declared_reason
        return Piece(
            model=model,
            reference=self.reference,
            candidate=candidate,
            samples=tuple(alike),
            policy=Policy(declared=case.policy.declared or Policy().declared, declared_reason=reason),
            nodes=len(computing_nodes(model.graph())),
            answers=self._answers(inside)[: len(alike)] if self.recorded else None,
        )

    def _fetch(self, names: Sequence[str]) -> None:
        """The values of these tensors on every sample: the reference's, or the candidate's where nothing runs again."""
        case = self.known.case
        given = {value.name for value in case.model.inputs}
        missing = [name for name in names if (self.places[0], name) not in self.values]
        for place in self.places if missing else ():
            arrays = case.inputs.sample(place).arrays
            self.values.update(((place, name), arrays[name]) for name in missing if name in given)
        wanted = tuple(name for name in missing if name not in given)
        if not wanted:
            return
        outputs = {value.name for value in case.model.outputs}
        request = RecordingRequest(
            samples=self.places,
            tensors=tuple(name for name in wanted if name not in outputs),
            folder=self.folder / f"values-{len(self.values)}",
            memory=self.known.request.memory,
            label="reference",
        )
        trace = record_trace(case.model, case.inputs, self.reference, request, self.known.progress)
        for place in self.places:
            self.values.update(((place, name), np.array(trace.get(place, name))) for name in wanted)

    def _answers(self, names: Sequence[str]) -> tuple[Arrays, ...]:
        return tuple(
            {name: self.values[place, name] for name in dict.fromkeys(names) if (place, name) in self.values}
            for place in self.places
        )


def open_source(known: Examination, places: tuple[int, ...], folder: Path) -> PieceSource:
    """What pieces of an examination are made of; its tensors are paired already.

    Raises:
        ParityError: a recorded candidate cannot be read.
    """
    case, candidate = known.case, known.candidate
    runtime = backend_named(candidate.backend)
    recorded = runtime.recorded or not runtime.reads_model
    reference = known.reference
    if backend_named(reference.backend).recorded or backend_named(reference.backend).origins is not None:
        reference = plain_target(reference)
    own = model_of(case.model, candidate) if candidate.option("model") and not recorded else None
    values = _recorded_values(known, places, folder) if recorded else {}
    held = {name for _, name in values} if recorded else set(known.names)
    graphs = Graphs(case.model, own, {mine: its for mine, its in known.names.items() if mine in held}, held)
    return PieceSource(
        known=known,
        reference=without_option(reference, "model"),
        graphs=graphs,
        own=own,
        recorded=recorded,
        places=places,
        folder=folder,
        values=values,
    )


def _recorded_values(known: Examination, places: tuple[int, ...], folder: Path) -> dict[tuple[int, str], np.ndarray]:
    """Every tensor that the candidate gave, by sample and the reference's name, in the types that the reference takes."""
    case, candidate = known.case, known.candidate
    shown = observable_tensors(case.model) if backend_named(candidate.backend).observes else []
    tensors = tuple(dict.fromkeys(known.names[name] for name in shown if name in known.names))
    request = RecordingRequest(
        samples=places, tensors=tensors, folder=folder / "recorded", memory=known.request.memory, label="candidate"
    )
    trace = record_trace(case.model, case.inputs, candidate, request, known.progress)
    typed = bool(case.model.formats)
    return {
        (place, mine): _widen_halves(np.array(trace.get(place, its)), typed=typed)
        for place in places
        for mine, its in known.names.items()
        if trace.has(place, its)
    }


def _widen_halves(array: np.ndarray, *, typed: bool) -> np.ndarray:
    """Halves as FP32, which holds each of them, where the reference's file is in FP32."""
    narrow = array.dtype.itemsize < _WIDE.itemsize and array.dtype.kind in "fV"
    return array.astype(_WIDE) if narrow and not typed else array


def _shapes_of_arrays(arrays: Arrays) -> Mapping[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def run_side(piece: Piece, target: Target) -> tuple[Arrays, ...]:
    """What a target gives for each sample of a piece.

    Raises:
        ParityError: it cannot be run.
    """
    from parityscope.case import Sample

    with open_target(piece.model, target, Capture()) as session:
        return tuple(
            dict(session.run(Sample(index=index, name=f"{index:06d}.npz", arrays=arrays)))
            for index, arrays in enumerate(piece.samples)
        )


def files_of(found: Reduced) -> dict[str, bytes]:
    """The content of each file by its name; weights that lie outside of a model's file have theirs beside it."""
    piece = found.piece
    files = _model_files(piece.model.path, "model.onnx")
    if own := piece.candidate.option("model"):
        files |= _model_files(Path(own), "candidate.onnx")
    for folder, samples in (("inputs", piece.samples), ("expected", found.expected), ("actual", found.actual)):
        files |= {f"{folder}/{number:06d}.npz": _pack_arrays(arrays) for number, arrays in enumerate(samples)}
    return files


def _model_files(path: Path, name: str) -> dict[str, bytes]:
    outside = external_files(read_message(path), path)
    files = {str(each.relative_to(path.parent.resolve())): each.read_bytes() for each in map(Path.resolve, outside)}
    return {name: path.read_bytes(), **files}


def _pack_arrays(arrays: Arrays) -> bytes:
    """An .npz of arrays by any name."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed:
        # Text is packed as text: objects could only be read back by whoever lets them run code.
        write_members(packed, {name: one.astype(str) if one.dtype == object else one for name, one in arrays.items()})
    return held.getvalue()
