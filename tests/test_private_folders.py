"""Scratch folders are the process's own, gone with it, swept up behind one that was killed; nothing of others is touched."""

from __future__ import annotations

import grp
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from parityscope import private_folders
from parityscope.forking import fork_child
from parityscope.private_folders import MARKER, is_private, lasting_folder, scratch_folder
from parityscope.whole_files import write_whole

_HELD = """import sys, time
from parityscope.private_folders import scratch_folder
with scratch_folder("test") as folder:
    (folder / "large").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of its own, as if this were a new process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private_folders.sweep_scratch.cache_clear()
    return tmp_path


def test_a_scratch_folder_is_ours_alone_and_gone_afterwards(place: Path) -> None:
    with scratch_folder("test") as folder:
        outer = folder.parent
        assert stat.S_IMODE(outer.stat().st_mode) == 0o700
        assert not list(folder.iterdir())
        (folder / "a").write_text("b", encoding="utf-8")
    assert not list(place.iterdir())


def test_what_a_killed_process_left_is_swept_up_and_nothing_else(place: Path) -> None:
    theirs = place / "parityscope-of-somebody"
    theirs.mkdir(mode=0o700)
    (theirs / "thesis.txt").write_text("years of work", encoding="utf-8")
    linked = place / "parityscope-link"
    linked.symlink_to(theirs)
    marked = place / "parityscope-marked"
    marked.mkdir(mode=0o777)
    marked.chmod(0o777)
    (marked / MARKER).touch()
    environment = {**os.environ, "TMPDIR": str(place)}
    started = [
        subprocess.Popen([sys.executable, "-c", _HELD], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    folders = [Path(one.stdout.readline().strip()).parent for one in started if one.stdout]
    try:
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()
        assert folders[0].exists()
        with scratch_folder("next"):
            assert not folders[0].exists()
            assert folders[1].exists()  # its process lives
    finally:
        for one in started:
            one.kill()
            one.wait()
            if one.stdout:
                one.stdout.close()
    assert (theirs / "thesis.txt").exists()
    assert linked.is_symlink()
    assert marked.exists()


def test_a_forked_child_leaves_none_of_its_lasting_folders_and_all_of_its_parents(place: Path) -> None:
    kept = lasting_folder("of-the-parent")

    def work() -> bytes:
        (lasting_folder("of-the-child") / "copy.onnx").write_bytes(b"large")
        return str(lasting_folder("of-the-parent")).encode()

    child = fork_child(work)
    os.waitpid(child.number, 0)
    assert Path(child.sent().decode()) == kept
    assert kept.is_dir()
    assert not [folder for folder in place.iterdir() if "of-the-child" in folder.name]


def test_a_folder_that_others_may_write_to_is_not_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not is_private(shared)
    assert not is_private(shared / "cache")
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    assert is_private(own / "not" / "there" / "yet")


def test_the_groups_of_others_are_not_private_and_the_user_s_own_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    own = (user.pw_name, "x", folder.stat().st_gid, [])
    groups = {
        "alone": (own, True),
        "named so too": ((*own[:3], [user.pw_name]), True),
        "with a guest": ((*own[:3], ["guest"]), False),
        "of a team": (("team", *own[1:]), False),
    }
    for name, (fields, private) in groups.items():
        monkeypatch.setattr(grp, "getgrgid", lambda _number, fields=fields: grp.struct_group(fields))
        assert is_private(folder) == (private and folder.stat().st_gid == user.pw_gid), name


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "thesis.txt"
    victim.write_text("years of work", encoding="utf-8")
    path = tmp_path / "out.json"
    (tmp_path / f"out.json.{os.getpid()}-{threading.get_ident()}.part").symlink_to(victim)
    write_whole(path, "{}")
    assert victim.read_text(encoding="utf-8") == "years of work"
    assert path.read_text(encoding="utf-8") == "{}"
    assert not path.is_symlink()
