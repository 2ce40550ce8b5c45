"""Models x versions x targets x settings as one table, from one file, each cell a pair as `check` examines it.

    declared = "f16"                             # as in every policy, for all cells

    [matrix]
    models = ["models/{version}/detector.onnx"]  # paths are relative to the file
    versions = ["v1", "v2"]                      # optional: what stands for {version} in models, targets and data
    targets = ["openvino:f16", "ort"]
    settings = ["threads=1", "threads=4"]        # optional: options that each target gets; "" for none
    inputs = "samples/"                          # and reference, preprocess, stacked, seed, samples, budgets as in [[check]]

What the last run found lies beside the file, in the form of a baseline with two facts more of each cell: the cause and the
latency.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from parityscope.case.policy_file import POLICY_KEYS, check_keys, read_policy
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plain_documents import read_toml_file
from parityscope.study._budgets import known_metrics
from parityscope.study.checking.baseline import baseline_entry
from parityscope.study.checking.pairs import KEYS_FOR_ALL, find_repeated, pairs_of_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parityscope.study.checking.pairs import CheckedPair

_AXES = ("models", "versions", "targets", "settings")
_PLACE = "{version}"
_MOST = 10_000  # cells; chosen
_EXAMPLE = "docs/matrix.md has an example"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """A pair, and where it stands: `row` is the model and its version, `column` the target and its settings."""

    row: str
    column: str
    pair: CheckedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFile:
    """The cells in the order of the file, rows first; `last` is where what the last run found lies, or will."""

    path: Path
    last: Path
    cells: tuple[MatrixCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What is told of a cell beside its errors: verdict, code of the cause ("": none), the candidate's seconds a sample.

    They are measured alike for all cells (`running`); of what nobody times (simulations) they are those of the comparison.
    """

    verdict: str
    cause: str
    latency_s: float


def read_matrix_file(path: Path, memory: int) -> MatrixFile:
    """Reads the file; `memory` in bytes is what each cell may take.

    Raises:
        ParityError: it cannot be read, has no matrix, names files that are not there, or two cells alike.
    """
    general = read_policy(path, known_metrics())
    held = read_toml_file(path, "the matrix")
    table = held.get("matrix")
    if not isinstance(table, dict):
        raise ParityError("it has no matrix", where=str(path), fix=f"write a [matrix] table; {_EXAMPLE}")
    check_keys(table, (*_AXES, *KEYS_FOR_ALL, *POLICY_KEYS), f"{path}, [matrix]")
    models, versions, targets, settings = (_read_axis(table, name, path) for name in _AXES)
    rest = {key: value for key, value in table.items() if key not in _AXES}
    if len(models) * len(versions) * len(targets) * len(settings) > _MOST:
        raise ParityError(f"it has more than {_MOST} cells", where=str(path), fix="write several files")
    cells = []
    for model, version, target, setting in itertools.product(models, versions, targets, settings):
        chosen = target + (("&" if "?" in target else "?") + setting if setting else "")
        said = {**rest, "model": model, "candidate": chosen}
        said = {key: one.replace(_PLACE, version) if isinstance(one, str) else one for key, one in said.items()}
        stem = model.replace(_PLACE, version).rpartition("/")[2].removesuffix(".onnx")
        row = f"{stem} {version}" if version else stem
        column = chosen if version else said["candidate"]
        said["name"] = f"{row} {column}"
        (pair,) = pairs_of_table(said, path, f"{path}, {row}, {column}", general, memory)
        cells.append(MatrixCell(row=row, column=column, pair=pair))
    if (name := find_repeated(one.pair.name for one in cells)) is not None:
        raise ParityError(f"two cells are called {name!r}", where=str(path), fix="give models of different names")
    return MatrixFile(path=path, last=path.with_name(f"{path.stem}-last.json"), cells=tuple(cells))


def facts_of_cell(document: Mapping[str, Any]) -> CellFacts:
    """The facts of a study, or of what is kept of one."""
    if "latency_s" in document:
        return CellFacts(
            verdict=str(document["verdict"]), cause=str(document["cause"]), latency_s=float(document["latency_s"])
        )
    causes = [one["code"] for one in document["findings"] if one["role"] == "cause"]
    samples, candidate = document["inputs"]["samples"] or 1, document["candidate"]
    return CellFacts(
        verdict=document["verdict"],
        cause=causes[0] if causes else "",
        latency_s=float(f"{candidate.get('latency_s') or candidate['seconds'] / samples:.3g}"),
    )


def cell_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a cell's study for the next run."""
    facts = facts_of_cell(document)
    return {**baseline_entry(document), "cause": facts.cause, "latency_s": facts.latency_s}


def _read_axis(table: Mapping[str, Any], name: str, path: Path) -> Sequence[str]:
    """The texts of an axis; an axis that may be left out has one empty text then."""
    optional = name in {"versions", "settings"}
    found = table.get(name, [""] if optional else None)
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and (one or optional) for one in found):
        raise ParityError(f"{name} is no list of texts", where=str(path), fix=f'write {name} = ["..."]; {_EXAMPLE}')
    return found
