"""The deployment's own inputs, sample by sample: from where the user says, or from the candidate's recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import is_recording
from parityscope.backends.matching import match_recordings
from parityscope.case.own import OwnInputs, stored_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.case import Inputs
    from parityscope.records import Target

__all__ = ["own_inputs"]


def own_inputs(data: str | Path | None, candidate: Target, inputs: Inputs) -> OwnInputs | None:
    """The inputs in `data`, else those in the candidate's recording; None where there are none.

    Which file belongs to which sample is told as for recorded outputs (`backends.matching`).

    Raises:
        ParityError: `data` cannot be read.
    """
    asked = data is not None
    if data is None:
        recorded = candidate.option("path")
        if not is_recording(candidate) or not recorded or not (Path(recorded) / "inputs").is_dir():
            return None
        data = Path(recorded) / "inputs"
    path = Path(data)
    stored = stored_arrays(path)
    if asked:  # what cannot be read is said before anything is run
        stored.read(0, stored.names(0))
    match = match_recordings(stored, stored.labels if path.is_dir() else (), candidate.option("pair", "name"))

    def read(index: int) -> Mapping[str, np.ndarray]:
        place = match(inputs.sample(index))
        return stored.read(place, stored.names(place))

    return OwnInputs(origin=stored.origin, read=read)
