"""Files that somebody names are opened only if they are regular: nothing blocks, never ends or is longer than it may be."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from parityscope.errors import ParityError
from parityscope.regular_files import open_regular_file, read_regular_file, read_text_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_regular_file_is_opened_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "held").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "held")
    with open_regular_file(tmp_path / "link", "the model") as file:
        assert file.read() == b"abc"
    assert read_regular_file(tmp_path / "held", "the model", limit=3) == b"abc"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
        for path, kind in (("pipe", "a pipe"), ("folder", "a folder"), ("socket", "a socket")):
            with pytest.raises(ParityError, match=f"the model is {kind}"):
                open_regular_file(tmp_path / path, "the model")
    for device in ("/dev/zero", "/dev/tty"):
        with pytest.raises(ParityError, match="the model"):
            open_regular_file(device, "the model")


@pytest.mark.parametrize("path", ["/proc/self/mem", "/proc/meminfo"])
def test_what_a_kernel_makes_up_is_refused(path: str) -> None:
    # Regular and of size 0, and one gives what the process holds.
    with pytest.raises(ParityError, match="makes up while it is read"):
        read_regular_file(path, "the model", limit=10)


def test_an_empty_file_is_read_as_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_regular_file(tmp_path / "empty", "the model", limit=10) == b""


@pytest.mark.parametrize("path", ["", "nowhere", "\0", "held/below", "x" * 5000, "loop"])
def test_a_name_that_opens_nothing_is_an_error(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held").write_bytes(b"abc")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ParityError):
        open_regular_file(path, "the model")


def test_more_bytes_than_there_may_be_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ParityError, match="1099511627776 bytes, more than the 5"):
        read_regular_file(tmp_path / "sparse", "the policy", limit=5)


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo \xff")
    with pytest.raises(ParityError, match="line 2 holds the byte 0xff"):
        read_text_file(tmp_path / "text", "the policy", limit=100)
