"""The preprocessing that the model expects, as a numpy function.

What it changes: the deployment's own code. One function takes the raw array and gives what the model's input holds in
the reference: axes, channels, and (raw - subtract) / divide per channel.

Why it repairs: BGR for RGB, 0-255 for 0-1, a mean or deviation that is missing, NHWC for NCHW change the outputs as
much as a broken layer does, and in every number format alike.

Risk: none to the model. What was fitted is an affine map per channel: resizing, cropping and letterboxing are not part of
it.

Cost: as before; to move it into the model, see prepend_preprocessing.

How to undo: take the lines out again.

What the finding says: details "input", "raw_layout", "layout", "channels", "subtract", "divide", "raw_dtype", as
prepend_preprocessing describes them.

Source: torchvision.transforms.Normalize (subtract the mean, divide by the deviation) for the form of the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.repairs import Advice
from parityscope.repairs._preprocessing import preprocessing_of

if TYPE_CHECKING:
    import numpy as np

    from parityscope.records import Finding


def _write_code(finding: Finding) -> str | None:
    found = preprocessing_of(finding.details)
    if found is None:
        return None
    lines = ["    prepared = np.asarray(raw).astype(np.float32)"]
    if found.axes is not None:
        lines.append(f"    prepared = prepared.transpose({found.axes})")
    if found.channels is not None:
        lines.append(f"    prepared = prepared.take({list(found.channels)}, axis={found.channel})")
    if found.subtract:
        lines.append(f"    prepared = prepared - {_array_as_code(found.shaped(found.subtract))}")
    if found.divide:
        lines.append(f"    prepared = prepared / {_array_as_code(found.shaped(found.divide))}")
    lines.append("    return np.ascontiguousarray(prepared)")
    head = [
        "import numpy as np",
        "",
        "",
        "def preprocess(raw):",
        f'    """What the model reads as {found.input!r}, from a raw array of {found.raw_dtype}."""',
    ]
    return "\n".join([*head, *lines, ""])


def _array_as_code(array: np.ndarray) -> str:
    """The array as code; the shortest digits that give the same float32 again."""
    # A list of Python floats is rounded to float32 by np.array, to the numbers that it was made of.
    return f"np.array({array.tolist()!r}, np.float32)"


ADVICE = Advice(
    name="preprocess_in_code",
    title="The preprocessing that the model expects, as a numpy function",
    risk="none to the model; resizing and cropping are not part of it",
    write=_write_code,
)
