"""A second user who may write where we write for a moment: `python -m proving.two_users`, as root; exit 0 or 1.

The second user may write the temporary folder (sticky, as /tmp is) and a cache that somebody shares (mode 777). Before a
command he plants what one of ours would leave there: scratch folders with their marker, links to files of ours, pipes, and
compiled code that runs his own (the index of numba's cache is a pickle). While it runs he looks again and again for everything
new there and tries to write into it, replace it, rename it and remove it. Nothing of his may run, change a verdict or reach
a file of ours; and what is his stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import parityscope
from parityscope.private_folders import MARKER  # here: the second user may not read what is imported later
from proving.home import write_files

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = 65534  # "nobody"
PATIENCE_S = 600.0
# The command, in a process where compiled loops are loaded already: on little data none are, and nothing could be poisoned.
_WITH_LOOPS = "import parityscope.compiling; from parityscope.cli import main; main()"
_CODE = {".nbi", ".nbc"}
_ON = ("--inputs", "samples", "--quiet")
COMMANDS: dict[str, tuple[str, ...]] = {
    "compare": ("compare", "model.onnx", "--candidate", "ort?model=deployed.onnx&isolate=on", *_ON),
    "diagnose": ("diagnose", "model.onnx", "--candidate", "ort?model=deployed.onnx", *_ON),
    "predict": ("predict", "model.onnx", *_ON, "--formats", "f16,bf16"),
    "repair": ("repair", "model.onnx", *_ON, "--low", "f16", "--budget", "rel_l2=0.01", "-o", "fixed.onnx"),
    "verify": ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", *_ON, "--no-timing"),
}
_WITH_STUDY = {"compare", "diagnose", "verify"}


class _Runs:
    """Makes a file when it is unpickled: code of the second user's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.open, (str(self.path), os.O_CREAT | os.O_WRONLY, 0o666)


class World:
    """Our folder, the shared temporary folder, the shared cache, and a folder of the second user's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ours, self.temporary, self.cache, self.his = (
            root / name for name in ("ours", "temporary", "cache", "his")
        )
        for folder, mode in ((self.ours, 0o755), (self.temporary, 0o1777), (self.cache, 0o777), (self.his, 0o777)):
            folder.mkdir()
            folder.chmod(mode)
        root.chmod(0o755)
        write_files(self.ours)
        (self.ours / "precious").mkdir()
        (self.ours / "precious" / "kept.bin").write_bytes(b"of ours")

    def run(self, *words: str, shared: bool) -> tuple[int, str]:
        """(exit code, everything told); `shared`: with the cache that the second user may write."""
        private = self.root / "private"
        private.mkdir(mode=0o700, exist_ok=True)
        cache = self.cache if shared else private
        environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(cache),
            "NUMBA_CACHE_DIR": str(cache / "numba"),
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", _WITH_LOOPS, *words],
            cwd=self.ours,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout + done.stderr

    def lend_code(self) -> None:
        """Compiled code that lies beside our files, copied to where an undisturbed run keeps it: it need not compile again."""
        from numba.core.caching import _CacheLocator

        for folder in Path(parityscope.__file__).parent.rglob("__pycache__"):
            kept = [path for path in folder.iterdir() if path.suffix in _CODE]
            place = self.root / "private" / "numba" / _CacheLocator.get_suitable_cache_subpath(str(folder.parent / "_"))
            for path in kept:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copy2(path, place)

    def code_kept(self) -> list[Path]:
        """The names, relative to the cache, of compiled code that an undisturbed run kept."""
        private = self.root / "private"
        return [path.relative_to(private) for path in private.rglob("*") if path.suffix in _CODE]


def plant(world: World, kept: list[Path]) -> None:
    """What the second user prepares; runs as him, with relative names only (he may not look into what is above)."""
    os.chdir("temporary")
    poison = pickle.dumps(_Runs(world.his / "ran"))
    for name in ("parityscope-session-aaaa", "parityscope-recording-bbbb"):
        Path(name, "work").mkdir(parents=True)
        Path(name).chmod(0o700)
        Path(name, MARKER).touch()
        Path(name, "work", "kept.bin").write_bytes(b"of the second user")
    Path("parityscope-link-cccc").symlink_to(world.ours / "precious")
    Path("parityscope-file-dddd").write_bytes(b"of the second user")
    os.mkfifo("parityscope-pipe-eeee")
    Path("parityscope-marked-ffff").mkdir()
    Path("parityscope-marked-ffff", MARKER).symlink_to(world.ours / "precious" / "kept.bin")
    os.chdir("../cache")
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, *path.parent.parents):
            with contextlib.suppress(OSError):
                folder.chmod(0o777)
        path.write_bytes(poison)
        path.chmod(0o666)


def disturb() -> None:
    """Tries, for ever, to change what appears in the temporary folder; what he could do is written to `his`."""
    os.chdir("temporary")
    reached = Path("../his/reached")
    while True:
        time.sleep(0.0005)  # two thousand looks a second; the core is left to the command
        for entry in list(os.scandir(".")):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != OTHER:
                    _attack(entry.name, reached)


def _attack(name: str, reached: Path) -> None:
    for what, attempt in (
        ("wrote into", lambda: Path(name, "planted.py").write_bytes(b"planted")),
        ("wrote to", lambda: os.close(os.open(name, os.O_WRONLY))),  # never makes a file of his own
        ("listed", lambda: os.listdir(name)),
        ("opened to all", lambda: Path(name).chmod(0o777)),
        ("renamed", lambda: Path(name).rename(name + "-taken")),
        ("removed", lambda: Path(name).unlink()),
    ):
        with contextlib.suppress(OSError):
            attempt()
            with reached.open("a", encoding="utf-8") as told:
                told.write(f"{what} {name}\n")


@contextlib.contextmanager
def second_user(world: World, *, live: bool, kept: list[Path]) -> Iterator[None]:
    """Runs `plant`, and `disturb` while the block runs, as the second user."""
    _as_other(world, lambda: plant(world, kept))
    child = os.fork() if live else 0
    if live and child == 0:
        os.chdir(world.root)
        _become_other()
        with contextlib.suppress(BaseException):
            disturb()
        os._exit(0)
    try:
        yield
    finally:
        if live:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _as_other(world: World, work: Any) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(world.root)  # what lies above it he may not even look into
            _become_other()
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the second user could not prepare what he wanted")


def _become_other() -> None:
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


def _digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"link to {path.readlink()}"
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _told(world: World, name: str, status: int) -> Any:
    """What must be the same with and without the second user."""
    if name in _WITH_STUDY and (world.ours / "study" / "study.json").exists():
        held = json.loads((world.ours / "study" / "study.json").read_text(encoding="utf-8"))
        return status, held["verdict"], [one["claim"] for one in held.get("findings", [])]
    if name == "repair":
        return status, _digests(world.ours)[str(world.ours / "fixed.onnx")]
    return status, None


def _cleared(world: World) -> None:
    shutil.rmtree(world.ours / "study", ignore_errors=True)
    for path in world.ours.glob("fixed.*"):
        path.unlink()


def problems_of(name: str) -> list[str]:
    """What the second user reached while the command of this name ran."""
    with tempfile.TemporaryDirectory(prefix="two-users-") as held:
        world = World(Path(held))
        world.lend_code()
        words = (*COMMANDS[name], "--study", "study") if name in _WITH_STUDY else COMMANDS[name]
        status, said = world.run(*words, shared=False)
        if status not in {0, 1, 3}:
            raise RuntimeError(f"{name} ends in {status} by itself: {said}")
        wanted = _told(world, name, status)
        _cleared(world)
        kept = world.code_kept()
        if not kept:
            raise RuntimeError("an undisturbed run kept no compiled code: there is nothing to poison")
        found: list[str] = []
        ours = _digests(world.ours)
        with second_user(world, live=True, kept=kept):
            his = _digests(world.temporary)
            time.sleep(0.2)
            status, said = world.run(*words, shared=True)
        if (world.his / "ran").exists():
            found.append("code of the second user ran")
        if (world.his / "reached").exists():
            found.append("he " + "; he ".join((world.his / "reached").read_text(encoding="utf-8").split("\n")[:5]))
        if _told(world, name, status) != wanted:
            found.append(f"another result: {_told(world, name, status)} instead of {wanted}: {said[-300:]}")
        _cleared(world)
        if _digests(world.ours) != ours:
            found.append("files of ours were changed")
        if _digests(world.temporary) != his:
            found.append("files of his were changed, or something was left")
        return found


def main() -> int:
    """Exit code 1 if a promise was broken."""
    if os.geteuid() != 0:
        print("this needs root, to become two users", file=sys.stderr)
        return 2
    status = 0
    for name in COMMANDS:
        found = problems_of(name)
        print(f"{name:10} {'; '.join(found) or 'nothing reached'}", flush=True)
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
