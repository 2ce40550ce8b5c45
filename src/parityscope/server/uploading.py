"""What somebody sent -> files below the folder, and a comparison of them in a process of its own.

No name that was sent becomes a place but by its letters, digits, dots, dashes and underscores; an archive's members are
data, written one by one inside of their own folder and within a limit. The study lies beside what it was made of, so
that its commands can be repeated. What runs is `parityscope compare`, as somebody would type it.
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import re
import secrets
import shutil
import stat
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.times import stamp_now
from parityscope.visible import make_visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

UPLOADS = "uploads"
DECLARED = ("f32", "tf32", "f16", "bf16", "int8")
_TOGETHER = 2  # comparisons that run at once; chosen
_KEPT = 50  # comparisons that ended without a study and are still told of; chosen
_MEMBERS = 100_000
_BLOCK = 1 << 20
_TOLD = 4000  # signs of an error that are told
_SIGNS = re.compile(r"[^A-Za-z0-9._-]+")
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, RuntimeError, ValueError, EOFError)
_BESIDE = "__MACOSX"  # where macOS packs what its files have beside their bytes
_ENDS = (".npz", ".safetensors", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile:
    """A file of a form: the name that was sent with it, and its bytes."""

    name: str
    content: IO[bytes]


@dataclass(slots=True, kw_only=True)
class UploadedComparison:
    """A comparison that was started: `told` is what it said where it ended without a study, and `study` where that is."""

    name: str
    study: bytes
    process: subprocess.Popen[bytes] | None = None
    told: str = ""
    ended: bool = False


@dataclass(slots=True)
class Comparisons:
    """Those that this server started, the last first; `largest` are the bytes that an archive may become."""

    root: Path
    largest: int
    held: list[UploadedComparison] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, one: UploadedComparison) -> None:
        """Takes one that begins.

        Raises:
            ParityError: as many run already as may.
        """
        with self._lock:
            if sum(not each.ended for each in self.held) >= _TOGETHER:
                raise ParityError(f"{_TOGETHER} comparisons run already", fix="wait until one has ended")
            self.held.insert(0, one)
            ended = [each for each in self.held if each.ended]
            for each in ended[_KEPT:]:
                self.held.remove(each)

    def end_all(self) -> None:
        """Ends what still runs."""
        with self._lock:
            for each in self.held:
                if each.process is not None and each.process.poll() is None:
                    each.process.terminate()
        for each in self.held:
            if each.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.process.wait(timeout=20)


def start_comparison(held: Comparisons, sent: Mapping[str, SentFile], declared: str) -> UploadedComparison:
    """Writes what was sent, and begins to compare it: `model`, `candidate`, and where given `reference` and `inputs`.

    Raises:
        ParityError: something is missing, or is no file that can be compared.
    """
    for name, what in (("model", "the model (.onnx)"), ("candidate", "the candidate's recording")):
        if name not in sent:
            raise ParityError(f"{what} was not sent", fix="choose a file for it")
    if declared not in DECLARED:
        raise ParityError(f"{declared[:40]!r} is no arithmetic", fix=f"choose one of: {', '.join(DECLARED)}")
    stem = _safe_name(sent["model"].name.removesuffix(".onnx"), "model")
    folder = held.root / UPLOADS / f"{stamp_now()}-{secrets.token_hex(3)}"
    study = folder / "study"
    one = UploadedComparison(name=stem, study=os.fsencode(study.relative_to(held.root)))
    held.enter(one)
    try:
        folder.mkdir(parents=True)
        _run_aside(one, _words_of(folder, stem, _write_sent(folder, stem, sent, held.largest), declared), folder)
    except BaseException as error:
        one.ended, one.told = True, str(error)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(ValueError):
            held.held.remove(one)
        if isinstance(error, OSError):
            raise ParityError(f"what was sent cannot be written: {error.strerror}", fix="free disk space") from error
        raise
    return one


def _words_of(folder: Path, stem: str, written: Mapping[str, Path], declared: str) -> list[str]:
    """The command line of the comparison, in `folder`, where every name is one of ours."""
    names = {name: str(path.relative_to(folder)) for name, path in written.items()}
    precision = "" if declared == "f32" else f":{declared}"
    words = ["compare", f"{stem}.onnx", "--candidate", f"saved{precision}?path={names['candidate']}"]
    if "reference" in names:
        words += ["--reference", f"saved?path={names['reference']}"]
    inputs = written.get("inputs") or _inputs_of(written["candidate"]) or _inputs_of(written.get("reference"))
    if inputs is None:
        raise ParityError(
            "the inputs of the recording were not sent, and it holds none",
            fix="send them as well: an .npz, or a .zip of a folder with one file a sample",
        )
    return [*words, "--inputs", str(inputs.relative_to(folder)), "--study", "study", "--format", "json"]


def _inputs_of(recording: Path | None) -> Path | None:
    """The inputs that a recorder wrote beside the outputs."""
    if recording is None or not (recording / "inputs").is_dir():
        return None
    return recording / "inputs"


def _write_sent(folder: Path, stem: str, sent: Mapping[str, SentFile], largest: int) -> dict[str, Path]:
    written = {}
    for name, file in sent.items():
        if name == "model":
            _copy_bounded(file.content, folder / f"{stem}.onnx", largest)
            continue
        lower = file.name.lower()
        if lower.endswith(".zip"):
            packed = folder / f"{name}-packed"
            _unpack(file.content, packed, largest)
            only = list(packed.iterdir())
            written[name] = folder / name
            # What was packed as one folder is that folder.
            (only[0] if len(only) == 1 and only[0].is_dir() else packed).rename(written[name])
            shutil.rmtree(packed, ignore_errors=True)
            continue
        end = next((end for end in _ENDS if lower.endswith(end)), None)
        if end is None:
            raise ParityError(
                f"{make_visible(file.name)[:80]!r} is no recording",
                fix=f"send one of {', '.join(_ENDS)}, or a folder of them as a .zip",
            )
        written[name] = folder / f"{name}{end}"
        _copy_bounded(file.content, written[name], largest)
    return written


def _unpack(content: IO[bytes], place: Path, largest: int) -> None:
    """Writes the regular members of an archive below `place`; a name that leads elsewhere ends it.

    Raises:
        ParityError: it is no archive, or one that is not to be unpacked.
    """
    place.mkdir()
    left = largest
    try:
        with zipfile.ZipFile(content) as archive:
            members = archive.infolist()
            if len(members) > _MEMBERS:
                raise ParityError(f"the archive has {len(members)} members, more than {_MEMBERS}", fix="send fewer")
            for member in members:
                kind = stat.S_IFMT(member.external_attr >> 16)
                if member.is_dir() or kind not in {0, stat.S_IFREG}:
                    continue
                inner = _inner_place(member.filename)
                if inner.parts[0] == _BESIDE:
                    continue
                target = place / inner
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source:
                    left = _copy_bounded(source, target, left)
    except _DAMAGED as error:
        raise ParityError(f"the archive cannot be unpacked: {error}", fix="pack it again as a plain .zip") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise ParityError("the archive has two members of one name", fix="pack it again") from error
    except OSError as error:
        if error.errno not in {None, errno.ENAMETOOLONG}:  # bz2 says that data are damaged so, without a number
            raise
        said = error.strerror or str(error)
        raise ParityError(f"the archive cannot be unpacked: {said}", fix="pack it again as a plain .zip") from error


def _inner_place(name: str) -> PurePosixPath:
    parts = [part for part in name.replace("\\", "/").split("/") if part not in {"", "."}]
    if ".." in parts or name.startswith(("/", "\\")) or ":" in name or not parts or "\0" in name:
        raise ParityError(
            f"the archive has a member outside of itself: {make_visible(name)[:80]!r}", fix="pack it again"
        )
    return PurePosixPath(*parts)


def _copy_bounded(source: IO[bytes], target: Path, left: int) -> int:
    """Writes a new file of at most `left` bytes; gives how many are left then.

    Raises:
        ParityError: there are more.
    """
    with target.open("xb") as file:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise ParityError("what was sent is more than this server takes", fix="start it with a larger --upload")
            file.write(block)
    return left


def _safe_name(name: str, default: str) -> str:
    plain = _SIGNS.sub("_", name.replace("\\", "/").rpartition("/")[2])[:80].strip("._-")
    return plain or default


def _run_aside(one: UploadedComparison, words: list[str], folder: Path) -> None:
    # -P: no .py file of the folder takes the place of a module.
    environment = {**os.environ, "NO_COLOR": "1"}
    environment.pop("PARITYSCOPE_TOKEN", None)
    one.process = subprocess.Popen(
        [sys.executable, "-P", "-m", "parityscope", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    threading.Thread(target=_wait_for, args=(one,), daemon=True).start()


def _wait_for(one: UploadedComparison) -> None:
    process: Any = one.process
    last = ""
    with process:
        for line in _lines_of(process.stderr):
            last = f"{last}{line}"[-_TOLD:]
    status = process.returncode
    one.told = "" if status in {0, 1, 3} else make_visible(last.strip()) or f"it ended with {status}"
    one.ended = True


def _lines_of(stream: IO[bytes]) -> Iterator[str]:
    while block := stream.read1(1 << 16):  # type: ignore[attr-defined]
        yield block.decode("utf-8", "replace")
