"""trtexec's debug tensors: what `--saveAllDebugTensors=summary,numpy,raw` leaves in the folder it was started in.

* `0007_<tensor>.npy`, `0007_<tensor>.raw`: the tensor that was the eighth to be computed. BF16, FP8 and FP4 become float32 in the
  .npy (`0007_<tensor>_to_float.npy`), INT4 int8 (`..._to_int8.npy`); a .raw file holds the bytes as they are;
* `tensor_summary.json`: name, shape, type and files of each, in that order.

Names of files are made safe as everywhere in trtexec, and the summary has the real ones; without a summary a file belongs to the
tensor whose name makes its name. trtexec writes all tensors in every inference, also in those that only warm up, and all
have the same inputs: of several rounds the last one counts, which is that of the outputs. A tensor that comes several times in
one round is in a loop: `h`, `h#1`, `h#2`.

Source: DebugTensorWriter in TensorRT's `samples/common/debugTensorWriter.cpp`, 10.12 and newer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from parityscope.case.formats import UNREADABLE, unreadable_error
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.plain_documents import read_json_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

_SUMMARY_NBYTES = 64 << 20  # chosen: some hundred bytes a tensor
SUMMARY = "tensor_summary.json"
_NUMBERED = re.compile(r"^(\d{4,}_)(.+)\.npy$")
_CUT = "..."  # stands in the middle of file names that were too long
_CONVERTED = ("", "_to_float", "_to_int8")
# As trtexec names types there.
_TYPES = {
    "FLOAT": "fp32",
    "HALF": "fp16",
    "BF16": "bf16",
    "FP8": "fp8",
    "FP4": "fp4",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "INT4": "int4",
    "UINT8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugFile:
    """A tensor's file: an .npy, which tells its type and shape itself, or raw bytes of `dtype` (trtexec's word) and `shape`."""

    name: str
    path: Path
    dtype: str = ""
    shape: tuple[int, ...] = ()


def debug_files(folder: Path, known: Collection[str], safe: Callable[[str], str]) -> tuple[DebugFile, ...]:
    """The tensors of the last inference, each under its own name; `safe` makes the name of a file of any text.

    Raises:
        ParityError: the summary cannot be read, or names a file that is not there.
    """
    summary = folder / SUMMARY
    found = list(_files_in_summary(summary) if summary.is_file() else _files_by_name(folder, known, safe))
    if not found and (raw := next(filter(_is_raw, folder.glob("*.raw")), None)) is not None:
        raise ParityError(
            f"{raw.name} has no shape, and there is no {SUMMARY} that tells it",
            where=str(folder),
            fix="run trtexec again with --saveAllDebugTensors=summary,raw, or numpy",
        )
    names = [each.name for each in found]
    last = found[len(found) - _count_of_round(names) :]
    seen: Counter[str] = Counter()
    told = []
    for each in last:
        told.append(replace(each, name=f"{each.name}#{seen[each.name]}") if seen[each.name] else each)
        seen[each.name] += 1
    return tuple(told)


def _files_in_summary(summary: Path) -> Iterator[DebugFile]:
    try:
        tensors = read_json_file(summary, summary.name, limit=_SUMMARY_NBYTES)["tensors"]
        entries = [(str(each["name"]), each.get("files", {}), each) for each in tensors]
    except (*UNREADABLE, KeyError, AttributeError) as error:
        raise unreadable_error(summary, error) from error
    for name, files, entry in entries:
        if path := _file_of_entry(summary, files, "numpy"):
            yield DebugFile(name=name, path=path)
        elif (path := _file_of_entry(summary, files, "raw")) and (dtype := _TYPES.get(str(entry.get("type")))):
            yield DebugFile(name=name, path=path, dtype=dtype, shape=tuple(int(size) for size in entry["shape"]))
    if entries and not any(
        _file_of_entry(summary, files, kind) for _, files, _ in entries for kind in ("numpy", "raw")
    ):
        raise ParityError(
            f"{summary.name} tells ranges of {len(entries)} tensors and no file that holds one",
            where=str(summary),
            fix="run trtexec again with --saveAllDebugTensors=summary,numpy",
        )


def _file_of_entry(summary: Path, files: Any, kind: str) -> Path | None:
    """The file that an entry names, which lies beside the summary."""
    if not files.get(kind):
        return None
    path = summary.parent / re.split(r"[/\\]", str(files[kind]))[-1]
    if not path.is_file():
        raise ParityError(
            f"{summary.name} names {path.name}, which is not there",
            where=str(summary.parent),
            fix="copy the whole folder that trtexec was started in",
        )
    return path


def _files_by_name(folder: Path, known: Collection[str], safe: Callable[[str], str]) -> Iterator[DebugFile]:
    by_file: dict[str, list[str]] = {}
    for name in known:
        by_file.setdefault(safe(name), []).append(name)
    for path in sorted(folder.glob("*.npy")):
        numbered = _NUMBERED.match(path.name)
        if numbered is None:
            continue
        ends = [end for end in _CONVERTED if numbered[2].endswith(end)]
        fitting = [name for end in ends for name in by_file.get(numbered[2].removesuffix(end), ())]
        if not fitting and _CUT in path.name:
            fitting = [name for name in known for end in ends if safe(f"{numbered[1]}{name}{end}.npy") == path.name]
        yield DebugFile(name=fitting[0] if len(fitting) == 1 else numbered[2], path=path)


def _is_raw(path: Path) -> bool:
    return re.match(r"\d{4,}_", path.name) is not None and ".output." not in path.name and ".input." not in path.name


def _count_of_round(names: Sequence[str]) -> int:
    """How many tensors one inference has: the shortest run of names of which the whole list is repetitions."""
    for length in range(1, len(names) // 2 + 1):
        if len(names) % length == 0 and all(names[index] == names[index % length] for index in range(len(names))):
            return length
    return len(names)
