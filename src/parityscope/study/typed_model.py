"""A model with values of low formats, held against its FP32 original: the faithful error, and what a CPU hides of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from parityscope.arithmetic.typed.lifting import float32_copy, low_formats, read_as_float32
from parityscope.backends.targets import format_target
from parityscope.case import load_model
from parityscope.comparison.distance import error_distance
from parityscope.errors import ParityError
from parityscope.light_dataclasses import asdict, dataclass, replace
from parityscope.private_folders import scratch_folder
from parityscope.records import Finding, Skip, Target
from parityscope.study._examining import examine_request
from parityscope.study._folder import to_strict_data
from parityscope.study._opening import open_request
from parityscope.study.outputs import run_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.examination import Examination
    from parityscope.request import Data

_LARGE = 1 << 20  # bytes; weights from this size on go into a file of their own. Chosen.


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedSides:
    """The files that are compared. `model` is what was given; `candidate` reads what the reference's inputs are."""

    model: Path
    original: Path | None
    reference: Path
    candidate: Path
    declared: str
    notes: tuple[Skip, ...]

    def target(self, backend: str) -> Target:
        """The candidate in a backend."""
        return Target(backend=backend, options=(("model", str(self.candidate)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What ONNX Runtime's CPU provider makes of the model as it stands: relative L2 by output, or why nothing."""

    errors: dict[str, float]
    problem: str = ""


@contextlib.contextmanager
def open_typed(
    model: Path, original: Path | None, data: Data, *, declared: str = "", **asked: Any
) -> Iterator[tuple[Examination, TypedSides]]:
    """The examination of a typed model, rounded as it says, against its original; `asked` are fields of the request.

    Without an original the reference is the model itself with its values in low formats lifted to FP32.

    Raises:
        ParityError: a file or the data cannot be read, or there is neither an original nor a low format.
    """
    with scratch_folder("evaluate") as scratch:
        sides = _find_sides(model, original, Path(scratch))
        candidate = format_target(sides.target("sim"))
        request = data.make_request(sides.reference, candidate, declared=declared or sides.declared, **asked)
        with open_request(request) as examination:
            yield examination, sides


def examine_typed(asked: Examination, sides: TypedSides) -> dict[str, Any]:
    """The study's document: the faithful error, and beside it what ONNX Runtime's CPU provider claims.

    Raises:
        ParityError: a side cannot run.
    """
    return _tell_claims(examine_request(asked), sides, asked)


def _find_sides(model: Path, original: Path | None, scratch: Path) -> TypedSides:
    """Makes the reference where there is none, and a candidate that takes the reference's samples.

    Raises:
        ParityError: a file cannot be read, or there is neither an original nor a low format.
    """
    given = load_model(model)
    formats = low_formats(given.graph())
    # Of two formats the coarser one is what the model declares; FP8 is what products read, and no arithmetic of its own.
    halves = [one for one in formats if one != "f8e4m3"]
    declared = halves[-1] if halves else ""
    if original is None and not formats:
        raise ParityError(
            f"{model.name} holds no value of float16, bfloat16 or FP8: there is nothing in it to hold it against",
            where=str(model),
            fix="give the original: --reference ORIGINAL.onnx",
        )
    if original is None:
        lifted, notes = float32_copy(given.graph())
        reference = _save_model(lifted, scratch / "lifted" / model.name)
        return TypedSides(
            model=model,
            original=None,
            reference=reference,
            candidate=model,
            declared=declared,
            notes=(_no_original(), *notes),
        )
    read = given.graph()
    differs = read_as_float32(read, {value.name: value.dtype for value in load_model(original).inputs})
    return TypedSides(
        model=model,
        original=original,
        reference=original,
        candidate=_save_model(read, scratch / "read" / model.name) if differs else model,
        declared=declared,
        notes=(),
    )


def _no_original() -> Skip:
    return Skip(
        what="the rounding of the weights",
        reason="no original was given: the reference is the model itself with its float16 and bfloat16 values and "
        "Casts lifted to FP32, and its weights were rounded before",
        fix="--reference ORIGINAL.onnx",
    )


def _save_model(model: ir.Model, path: Path) -> Path:
    path.parent.mkdir()
    ir.save(model, path, external_data="weights.bin", size_threshold_bytes=_LARGE)
    return path


def _compare_claims(asked: Examination, sides: TypedSides) -> _Claims:
    """Compares the model as ONNX Runtime's CPU provider runs it with the reference, on the same samples."""
    try:
        run = run_outputs(replace(asked, candidate=sides.target("ort")))
    except ParityError as refusal:
        return _Claims(errors={}, problem=refusal.problem)
    return _Claims(errors={name: error_distance(found) for name, found in run.statistics.items()})


def _tell_claims(document: dict[str, Any], sides: TypedSides, asked: Examination) -> dict[str, Any]:
    """The document with what ONNX Runtime claims beside the faithful errors, and with the files that were given."""
    claims = _compare_claims(asked, sides)
    faithful = {output["name"]: output["rel_l2"] for output in document["outputs"]}
    finding = _finding_of(faithful, claims)
    changed = dict(document)
    changed["model"] = {**document["model"], "path": str(sides.original or sides.model), "name": sides.model.stem}
    changed["candidate"] = {**document["candidate"], "target": f"sim?model={sides.model}"}
    changed["findings"] = [*document["findings"], asdict(finding)]
    # Only outputs are compared: that a typed model has Casts which its original lacks is no omission.
    skipped = [skip for skip in document["skipped"] if skip["asked"] or not skip["what"].startswith("tensor ")]
    changed["skipped"] = [*skipped, *(asdict(note) for note in sides.notes)]
    plain: dict[str, Any] = to_strict_data(changed)
    return plain


def _finding_of(faithful: dict[str, Any], claims: _Claims) -> Finding:
    pairs = [
        f"{name!r} {claimed:.3g} (rounded: {_words_of_number(faithful[name])})"
        for name, claimed in claims.errors.items()
    ]
    claim = (
        f"It refuses to run the model: {claims.problem}"
        if claims.problem
        else f"Run there, the model seems to be off by {', '.join(pairs)}. It computes float16 "
        "in float32 and leaves the roundings between operators out, at every optimization level: its figure is none "
        "of a device that stores float16."
    )
    return Finding(
        code="CLAIM",
        title="What ONNX Runtime's CPU provider says of the same model",
        role="information",
        claim=claim,
        confidence=1.0,
        confidence_from="both were run on the same samples",
        details={f"relative L2 of {name!r} there": claimed for name, claimed in claims.errors.items()},
    )


def _words_of_number(value: float | str) -> str:
    """A number of a document, where those that are not finite are words."""
    return value if isinstance(value, str) else f"{value:.3g}"
