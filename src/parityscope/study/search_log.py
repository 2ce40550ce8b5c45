"""What runs on changed inputs measured, kept beside the recorded tensors: a search that was cut off goes on where it was.

One line a run, written as soon as it is known: a digest of the inputs and three numbers, as `float.hex` writes them, or nothing
where the model refused the inputs. A line that was cut off is no line. All that the numbers depend on stands in the facts of the
scratch folder (`_scratch_folder.py`), which is emptied for another run.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TRIED = "tried.txt"
_LONGEST = 1 << 20  # lines that are read; a search makes a thousand


class TriedRuns(dict[str, tuple[float, float, float] | None]):
    """Measurements by digest; what is set is also written, where that is possible."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / TRIED
        with contextlib.suppress(OSError, UnicodeDecodeError), self._path.open(encoding="ascii") as file:
            for line, _ in zip(file, range(_LONGEST), strict=False):
                self._read(line)

    def _read(self, line: str) -> None:
        key, *numbers = line.split(" ")
        if not line.endswith("\n") or len(numbers) not in {1, 3}:
            return
        with contextlib.suppress(ValueError, OverflowError):
            found = [float.fromhex(number.strip()) for number in numbers if number.strip() != "refused"]
            super().__setitem__(key, (found[0], found[1], found[2]) if len(found) == 3 else None)

    def __setitem__(self, key: str, value: tuple[float, float, float] | None) -> None:
        """Keeps and writes one measurement."""
        super().__setitem__(key, value)
        told = "refused" if value is None else " ".join(map(float.hex, value))
        # A folder that cannot be written costs the next run its time, and this one nothing.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="ascii") as file:
                file.write(f"{key} {told}\n")
