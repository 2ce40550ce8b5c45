"""`parityscope evaluate`: the faithful error of anybody's FP16, BF16, mixed or quantized model, on a CPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.cli._delivery import finish_study
from parityscope.cli.shell.output import command_line
from parityscope.cli.shell.progress import progress_for
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder
from parityscope.records import Finding, Skip, Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.cli._delivery import Delivery
    from parityscope.study import Examination

__all__ = ["NAME", "command"]

NAME = "evaluate"

_OriginalOption = Annotated[Path | None, typer.Option("--reference", help="The FP32 original (.onnx).")]
_LARGE = 1 << 20  # bytes; weights from this size on go into a file of their own. Chosen.


def command(
    model: Annotated[Path, typer.Argument(help="The model to evaluate (.onnx).", show_default=False)],
    *,
    data: o.Data,
    delivery: Delivery,
    original: _OriginalOption = None,
    declared: o.DeclaredOption = "",
    budget: o.BudgetOption = None,
    policy: o.PolicyOption = None,
    allow_skipped: o.AllowSkippedOption = "0",
    workers: o.WorkersOption = "",
) -> int:
    """Rounds what a typed model stores in low formats, compares it with its original, and tells what a CPU hides."""
    from parityscope.backends.targets import format_target
    from parityscope.study import Request, examine_request, open_request, run_facts

    with scratch_folder("evaluate") as scratch:
        sides = _find_sides(model, original, Path(scratch))
        request = Request(
            model=sides.reference,
            candidate=format_target(sides.target("sim")),
            **asdict(data),
            declared=declared or sides.declared,
            budgets=o.budgets_of(budget),
            policy=policy,
            allow_skipped=o.share_of(allow_skipped),
            workers=o.workers_of(workers),
            depth="tensors" if delivery.ladder or delivery.keep_tensors else "outputs",
        )
        with open_request(request) as asked:

            def work(folder: Path, _keep: object) -> dict[str, Any]:
                progress = progress_for(quiet=delivery.quiet)
                document = examine_request(replace(asked, folder=folder, command=command_line(), progress=progress))
                return _tell_claims(document, sides, _compare_claims(replace(asked, folder=folder), sides))

            return finish_study(model, delivery, work, run_facts(asked) if workers else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
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


def _find_sides(model: Path, original: Path | None, scratch: Path) -> _Sides:
    """Makes the reference where there is none, and a candidate that takes the reference's samples.

    Raises:
        ParityError: a file cannot be read, or there is neither an original nor a low format.
    """
    from parityscope.arithmetic.typed.lifting import float32_copy, low_formats, read_as_float32
    from parityscope.case import load_model

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
        return _Sides(
            model=model,
            original=None,
            reference=reference,
            candidate=model,
            declared=declared,
            notes=(_no_original(), *notes),
        )
    read = given.graph()
    differs = read_as_float32(read, {value.name: value.dtype for value in load_model(original).inputs})
    return _Sides(
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
    import onnx_ir as ir

    path.parent.mkdir()
    ir.save(model, path, external_data="weights.bin", size_threshold_bytes=_LARGE)
    return path


def _compare_claims(asked: Examination, sides: _Sides) -> _Claims:
    """Compares the model as ONNX Runtime's CPU provider runs it with the reference, on the same samples."""
    from parityscope.comparison.distance import error_distance
    from parityscope.study.outputs import run_outputs

    try:
        run = run_outputs(replace(asked, candidate=sides.target("ort")))
    except ParityError as refusal:
        return _Claims(errors={}, problem=refusal.problem)
    return _Claims(errors={name: error_distance(found) for name, found in run.statistics.items()})


def _tell_claims(document: dict[str, Any], sides: _Sides, claims: _Claims) -> dict[str, Any]:
    """The document with the claims beside the faithful errors, and with the files that were given."""
    from parityscope.study import to_strict_data

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
