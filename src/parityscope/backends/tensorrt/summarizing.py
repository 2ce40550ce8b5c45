"""The ranges of the tensors that an engine shows, as a file: nothing of the tensors themselves is kept, whatever their size.

The form is that of trtexec's `--saveAllDebugTensors=summary` (`tensor_summary.json`: `metadata` and `tensors`, each with `name`,
`shape`, `type`, `statistics` of `min`, `max`, `avg` and `elements`, and `files`), with the counts that it lacks: `nan`, `inf` and
`occurrences` (over all samples, and over the turns of loops). Numbers that are not finite are strings, as strict JSON needs.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.backends.tensorrt.listening import Summary

__all__ = ["summary_document", "write_summary"]


def summary_document(summaries: Mapping[str, Summary], *, engine: str) -> dict[str, Any]:
    """The summaries by tensor as plain data."""
    return {
        "metadata": {"title": "Tensor summary", "engine_name": engine},
        "tensors": [
            {
                "name": name,
                "shape": list(one.shape),
                "type": one.dtype,
                "statistics": {
                    "min": _as_json_number(one.smallest),
                    "max": _as_json_number(one.largest),
                    "avg": _as_json_number(one.mean),
                    "elements": one.count,
                    "nan": one.nan,
                    "inf": one.inf,
                    "occurrences": one.occurrences,
                },
                "files": {},
            }
            for name, one in summaries.items()
        ],
    }


def write_summary(path: Path, summaries: Mapping[str, Summary], *, engine: str) -> None:
    """Writes the summaries to `path`, over what an earlier sample wrote."""
    write_whole(path, json.dumps(summary_document(summaries, engine=engine), indent=1) + "\n")


def _as_json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN"
