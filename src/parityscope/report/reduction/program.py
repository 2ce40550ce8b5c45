"""A program that shows the finding with nothing but the runtimes and numpy: `reproduce.py` of the zip."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = '''"""{title}

Run it where it lies: python reproduce.py
Ends with exit code 1 where the candidate is still off, with 0 where it is not any more.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


'''
_KEPT = "return dict(np.load(HERE / {folder!r} / sample))  # {why}"
_MAIN = '''def distance(expected, actual):
    """Relative L2; infinite where one side alone is not finite."""
    expected, actual = (np.asarray(side, np.float64) for side in (expected, actual))
    if not (np.isfinite(expected) == np.isfinite(actual)).all():
        return float("inf")
    both = np.isfinite(expected)
    size = np.linalg.norm(expected[both])
    return float(np.linalg.norm(actual[both] - expected[both]) / (size if size > 0 else 1.0))


worst = 0.0
for path in sorted((HERE / "inputs").glob("*.npz")):
    inputs = dict(np.load(path))
    names = list(np.load(HERE / "expected" / path.name).files)
    expected = reference(str(HERE / {reference!r}), inputs, names, path.name)
    actual = candidate(str(HERE / {candidate!r}), inputs, names, path.name)
    for name in names:
        off = distance(expected[name], actual[name])
        worst = max(worst, off)
        print(f"{{path.name}} {{name}}: relative L2 {{off:.3g}}")
        print("  expected", np.ravel(expected[name])[:8])
        print("  actual  ", np.ravel(actual[name])[:8])
LIMIT = {limit!r}  # a tenth of what was measured when this was made
print("still off" if worst > LIMIT else "not off any more")
sys.exit(1 if worst > LIMIT else 0)
'''


def as_program(document: Mapping[str, Any]) -> str:
    """The program, for what `document` says of both sides."""
    finding = document["finding"]
    title = _in_docstring(f"{finding['op_type'] or 'The model'}: {document['claim'] or finding['title']}")
    reference, candidate = document["reference"], document["candidate"]
    parts = [
        _HEAD.format(title=title),
        _function_of_side("reference", reference, "expected"),
        _function_of_side("candidate", candidate, "actual"),
        _MAIN.format(reference=reference["file"], candidate=candidate["file"], limit=_limit_of_program(document)),
    ]
    return "".join(parts)


def _function_of_side(name: str, side: Mapping[str, Any], folder: str) -> str:
    why = f"as {'recorded' if side['recorded'] else 'computed'}: {side['title']} has no program of its own"
    body = side["program"] or _KEPT.format(folder=folder, why=why.replace("\n", " "))
    return f"def {name}(path, inputs, names, sample):\n{textwrap.indent(body, '    ')}\n\n\n"


def _limit_of_program(document: Mapping[str, Any]) -> float:
    sizes = [float(row["rel_l2"]) for row in document["outputs"] if row["rel_l2"] is not None]
    finite = [size for size in sizes if math.isfinite(size)]
    return max(finite, default=0.0) / 10


def _in_docstring(text: str) -> str:
    """Text of a model that ends no docstring and escapes nothing."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
