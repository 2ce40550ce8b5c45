"""A file is written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.case.formats.npz import write_npz
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

# No file of this process may grow beyond 64 bytes: what a full disk does, without one.
LIMITED = """import resource, signal, sys
from pathlib import Path
from parityscope.whole_files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    write_whole(Path(sys.argv[1]), "x" * 1000)
except OSError:
    sys.exit(7)
"""


def test_text_is_utf8_and_bytes_are_as_they_are(tmp_path: Path) -> None:
    write_whole(tmp_path / "text", "模型\n")
    write_whole(tmp_path / "bytes", b"\xff\x00")
    assert (tmp_path / "text").read_bytes() == b"\xe6\xa8\xa1\xe5\x9e\x8b\n"
    assert (tmp_path / "bytes").read_bytes() == b"\xff\x00"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "text"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    write_whole(tmp_path / "one", "a longer text")
    write_whole(tmp_path / "one", "short")
    assert (tmp_path / "one").read_text(encoding="utf-8") == "short"


def test_what_does_not_fit_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path / "one")], check=False, timeout=60)
    assert done.returncode == 7
    assert (tmp_path / "one").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_what_cannot_take_the_place_of_a_folder_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "one", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_an_array_that_cannot_be_stored_leaves_no_part_of_the_npz(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        write_npz(tmp_path / "x.npz", {"x": np.zeros(3), "o": np.array([None])})
    assert list(tmp_path.iterdir()) == []
