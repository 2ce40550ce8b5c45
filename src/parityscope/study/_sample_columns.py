"""The errors of many samples: a few numbers and the worst of them in the document, all of them as columns in a file beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.case.formats.npz import open_npz, write_npz
from parityscope.study._folder import to_strict_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.examination import Examination
    from parityscope.records import Pair

MOST_LISTED = 1000  # samples that a document lists one by one; chosen: a file of 100,000 is no longer one that is read
_WORST = 20  # that it names of more; chosen
COLUMNS = "samples.npz"
_PERCENTS = (0, 5, 50, 95, 100)


def errors_of_samples(known: Examination) -> dict[str, dict[str, Any]]:
    """By output, what the document holds of the errors of single samples; of many the columns are written first.

    Raises:
        ParityError: the disk is full.
    """
    many = [pair for pair in known.outputs if len(pair.per_sample) > MOST_LISTED]
    if many:
        columns = {}
        for place, pair in enumerate(many):
            found = known.compared.per_sample[pair.site.tensor]
            columns[f"index_{place}"] = np.array([index for index, _ in found], np.int64)
            columns[f"error_{place}"] = np.array([error for _, error in found])
        write_npz(known.folder / COLUMNS, columns)
    told: dict[str, dict[str, Any]] = {
        pair.site.tensor: {"per_sample": list(pair.per_sample)} for pair in known.outputs
    }
    for place, pair in enumerate(many):
        told[pair.site.tensor] = {"per_sample": [], "per_sample_summary": _summarize(known, pair, place)}
    return told


def list_errors(document: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The document with all errors listed, for whoever compares them or keeps no folder; `folder` holds the columns.

    Raises:
        ParityError: the columns cannot be read.
    """
    if folder is None or not (folder / COLUMNS).exists():
        return dict(document)
    held = open_npz([folder / COLUMNS], COLUMNS)
    columns = held.read(0, held.names(0))
    outputs = []
    for output in document["outputs"]:
        row = dict(output)
        if summary := row.pop("per_sample_summary", None):
            row["per_sample"] = to_strict_data(columns[summary["error"]].tolist())
        outputs.append(row)
    return {**document, "outputs": outputs}


def _summarize(known: Examination, pair: Pair, place: int) -> dict[str, Any]:
    found = known.compared.per_sample[pair.site.tensor]
    sizes = np.array([math.inf if math.isnan(error) else error for _, error in found])
    ordered = np.sort(sizes)
    worst = np.argsort(-sizes, kind="stable")[:_WORST].tolist()
    return {
        "file": COLUMNS,
        "index": f"index_{place}",
        "error": f"error_{place}",
        # Samples that are there: of an infinite one and its neighbour there is no number between.
        "percentiles": {f"{one}": float(ordered[round(one / 100 * (len(ordered) - 1))]) for one in _PERCENTS},
        "worst": [{"index": int(found[at][0]), "error": found[at][1]} for at in worst],
    }
