"""`parityscope preprocessing`: two preprocessings on the same images, step by step, without a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.errors import Exit, ParityError

if TYPE_CHECKING:
    from parityscope.checks.preparing import Parting, StageResult

__all__ = ["NAME", "command"]

NAME = "preprocessing"

_SCHEMA = "parityscope-preprocessing/1"


def command(
    reference: Annotated[str, typer.Argument(help="file.py:function, or a recipe (.toml).", show_default=False)],
    candidate: Annotated[str, typer.Argument(help="The deployment's, likewise.", show_default=False)],
    *,
    images: Annotated[Path, typer.Option(help="A folder of images.")],
    samples: o.SamplesOption = None,
    format_name: Annotated[str, typer.Option("--format", help="What stdout gets: text or json.")] = "text",
    quiet: o.QuietOption = False,
) -> int:
    """Says at which step two preprocessings part, and what is done differently there; exit code 1 if they part."""
    from parityscope.checks.preparing import compare_files

    if format_name not in {"text", "json"}:
        raise ParityError(f"there is no format {format_name!r}", fix="use --format text or json")
    found = compare_files(reference, candidate, images, samples)
    print(_as_text(found) if format_name == "text" else json.dumps(_as_plain(found), indent=1, allow_nan=False))
    if not quiet:
        print(f"{'they part' if found.first else 'they agree'} on {found.images} images", file=sys.stderr)
    return Exit.BEYOND if found.first else Exit.WITHIN


def _as_text(found: Parting) -> str:
    lines = []
    for stage in found.stages:
        mark = "=" if stage.is_same else "x"
        name = stage.name if stage.name == stage.candidate_name else f"{stage.name} / {stage.candidate_name}"
        lines += [
            f"{mark} {name}: the same on {stage.same} of {stage.images} images",
            f"    reference: {stage.reference}",
        ]
        lines += [] if stage.is_same else [f"    candidate: {stage.candidate}"]
    if found.alone:
        lines += [f"Steps that could not be paired: {', '.join(found.alone)}. Only the ends were compared."]
    return "\n".join([*lines, "", _verdict_of(found.first)])


def _verdict_of(first: StageResult | None) -> str:
    if first is None:
        return "Both preprocessings give the same."
    # A hundred-thousandth of the variance is what rounding in another order leaves.
    left = f" ({100 * first.left:.2g} % of the variance is not explained by that)" if first.left > 1e-5 else ""
    return f"They part at {first.name}: the candidate {first.words}{left}."


def _as_plain(found: Parting) -> dict[str, Any]:
    first = found.first
    return {
        "schema": _SCHEMA,
        "verdict": "within" if first is None else "beyond",
        "images": found.images,
        "paired_by": found.paired,
        "parts_at": None if first is None else first.name,
        "words": "" if first is None else f"the candidate {first.words}",
        "stages": [
            {
                "name": stage.name,
                "candidate_name": stage.candidate_name,
                "reference": stage.reference,
                "candidate": stage.candidate,
                "images": stage.images,
                "same": stage.same,
                "words": stage.words,
                "left": stage.left,
            }
            for stage in found.stages
        ],
        "skipped": [{"what": f"step {name}", "reason": "the other side has no such step"} for name in found.alone],
    }
