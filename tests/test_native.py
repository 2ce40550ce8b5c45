"""The kernels' machine code: kept once, linked without numba by later processes, compiled again where it is damaged."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.comparison import _native, measure_pair

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import sys
import numpy as np
from parityscope.comparison import measure_pair, measure_replay
r = np.arange(6, dtype=np.float32).reshape(2, 3)
assert measure_pair(r, r + 1, channel_axis=1).floats.moments.error == 6.0
assert measure_replay(r, r + 1, r, channel_axis=1).introduced2 == 6.0
print("numba" in sys.modules)
"""


def test_a_later_process_measures_without_numba() -> None:
    for expected in (None, "False"):  # the first one may have to compile
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
        assert expected is None or done.stdout.strip() == expected


def test_a_damaged_file_is_refused_and_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_folders", lambda: (tmp_path,))
    _native._load.cache_clear()
    try:
        one = np.ones(3)
        assert measure_pair(one, one + 0.5, channel_axis=None).floats.moments.error == 1.5
        (kept,) = tmp_path.glob("measure-float64-*.kernel")
        content = kept.read_bytes()
        with pytest.raises(ValueError, match="damaged"):
            _native._linked(content[:-1] + bytes([content[-1] ^ 1]))
        kept.write_bytes(content[: len(content) // 2])
        _native._load.cache_clear()
        assert measure_pair(one, one + 0.5, channel_axis=None).floats.moments.error == 1.5
        assert kept.read_bytes() == content or len(kept.read_bytes()) > len(content) // 2
    finally:
        _native._load.cache_clear()


def test_tables_must_be_contiguous() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        _native._address(np.zeros((4, 4))[:, 0])


def test_threads_that_link_at_once_share_one_engine() -> None:
    # Each would make its own where nothing holds them back; code of the one that is dropped is freed, and calling it crashes.
    code = (
        "import threading\n"
        "from parityscope.comparison import _native\n"
        "slow, found, begin = _native._engine.__wrapped__, [], threading.Barrier(4)\n"
        "def engine():\n"
        "    found.append(slow())\n"
        "    return found[-1]\n"
        "import functools\n"
        "_native._engine = functools.cache(engine)\n"
        "identity = _native._identity('measure', 'float32', 'int32')\n"
        "held = next((folder / identity).read_bytes() for folder in _native._folders() if (folder / identity).is_file())\n"
        "def link():\n"
        "    begin.wait()\n"
        "    assert _native._linked(held)\n"
        "threads = [threading.Thread(target=link) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert len(found) == 1, len(found)\n"
    )
    _native._loaded("measure", "float32", "int32")  # so that there is an object file
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
