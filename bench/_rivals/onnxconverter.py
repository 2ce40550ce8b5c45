"""onnxconverter-common's auto_convert_mixed_precision, given the budget as its validation.

    python onnxconverter.py MODEL SAMPLE.npz OUTPUT FLOORS.json    (in the throwaway environment)

It takes one sample and is pinned to ONNX Runtime's CPU provider, where it validates each attempt. What it gives back it has
validated: that is its claim. FLOORS.json: {"limit": budget, "floors": [root mean square of each output]}.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path


def main() -> None:
    import numpy as np
    import onnx
    from onnxconverter_common import auto_mixed_precision  # type: ignore[import-not-found,unused-ignore]

    model, sample, output, asked = sys.argv[1:]
    held = json.loads(Path(asked).read_text(encoding="utf-8"))

    def within(references: list[np.ndarray], candidates: list[np.ndarray]) -> bool:
        for reference, candidate, floor in zip(references, candidates, held["floors"], strict=True):
            r, c = reference.astype(np.float64), candidate.astype(np.float64)
            scale = max(float(np.linalg.norm(r)), floor * math.sqrt(r.size))
            if not float(np.linalg.norm(c - r)) <= held["limit"] * scale:
                return False
        return True

    with np.load(sample, allow_pickle=False) as arrays:
        feed = {name: arrays[name] for name in arrays.files}
    made = auto_mixed_precision.auto_convert_mixed_precision(onnx.load(model), feed, within, keep_io_types=True)
    onnx.save(made, output)


if __name__ == "__main__":
    main()
