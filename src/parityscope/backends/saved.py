"""Outputs recorded elsewhere: `saved?path=...`, so that any deployment can be judged without being here.

**What is read.** An .npz or .safetensors (one sample), an .npy (the sole output), a folder of them (each file is a
sample), folders of .npy called as the outputs are (`OUTPUT/000000.npy`), a recording (a folder with `outputs/`),
Polygraphy's `--save-outputs` JSON or folder, trtexec's `--exportOutput` JSON, and a folder of raw bytes
(`--dumpRawBindingsToFile`, or `<name>.bin`). A folder of `recorder/parityscope_tensorrt.py` tells what `trt` tells live:
tensors from inside, the engine's layers with kernels and times, what looking changed, and why a tensor is missing.

**Which belongs to which sample.** In a folder a recording is paired with its sample by file name, so that a file that is
missing is an error and shifts nothing (`backends/matching.py` has the rules; `pair=order` pairs by position instead).
In one file that holds many samples, recording i belongs to sample i of the data; `pair=rows` reads the samples from the rows of
one recording's arrays.

**Names** must be those of the model; `map=old:new,old2:new2` renames explicitly. A tensor that only one of the two
sides has is listed with its reason, never matched loosely. Arrays are given back as they were recorded: shapes and
dtypes are for the comparison to judge. Only trtexec's JSON has no dtypes; it takes the model's, and its values have six
significant digits (a relative error of up to 5e-6 that the deployment does not have).

**Precision** (`saved:f16?path=...`) is what the recorded deployment declares.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Session
from parityscope.backends.declared_axes import sizes_in
from parityscope.backends.machine import ENVIRONMENT_FILE, recorded_facts
from parityscope.backends.matching import ROWS, match_recordings
from parityscope.backends.targets import format_target, with_option
from parityscope.case.conformance import fits_declared, settle_declarations
from parityscope.case.formats import UNREADABLE, Stored, restore_lost_type, unreadable_error
from parityscope.case.formats.exported import open_exported
from parityscope.case.formats.folder import survey_folder
from parityscope.case.formats.npy import folders_of_tensors, open_npy, open_npy_folders
from parityscope.case.formats.npz import open_npz
from parityscope.case.formats.polygraphy import open_outputs
from parityscope.case.formats.safetensors_file import open_safetensors
from parityscope.case.formats.trtexec import Expected, open_raw
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, replace
from parityscope.records import Skip, Target
from parityscope.regular_files import open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.records import ValueInfo

FACTS_FILE = "tensorrt.json"  # what the recorder of TensorRT engines puts beside its tensors
_PEEK = 4096  # bytes of a JSON file that tell its kind: trtexec's first key is "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """Recorded tensors under the model's names: model name -> name in the recording."""

    stored: Stored
    names: Mapping[str, str]
    outputs: Mapping[str, ValueInfo]  # what the model declares, by the model's names
    match: Callable[[Sample], int]
    rows: (
        Callable[[Sample, str], int] | None
    )  # how many rows of the sole recording are a sample's, where it holds all samples


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    stored, files = _open_stored(model, target)
    if not stored.labels:
        raise ParityError("the recording holds no samples", where=stored.origin, fix="record at least one inference")
    recording = _name_recorded(model, target, stored, match_recordings(stored, files, target.option("pair", "name")))
    outputs = [value.name for value in model.outputs]
    wanted = [name for name in dict.fromkeys((*outputs, *capture.tensors)) if name in recording.names]
    if not recording.names.keys() & set(outputs):
        recorded = stored.names(0)
        if not recorded:
            raise ParityError(
                f"the recording's first sample, {stored.labels[0]}, holds no arrays",
                where=stored.origin,
                fix=f"write the outputs by their names: np.savez('{stored.labels[0]}', **{{'{outputs[0]}': ARRAY}})",
            )
        if given := sorted({value.name for value in model.inputs} & set(recorded)):
            raise ParityError(
                f"the recording holds the model's inputs ({', '.join(given)}) and none of its outputs ({', '.join(outputs)})",
                where=stored.origin,
                fix="give what the deployment answered as the candidate, and this with --inputs",
            )
        settled, pairs = _pair_by_shape(model, stored.read(0, recorded))
        which = "their shapes tell which is which" if settled else "say which is which, for example"
        raise ParityError(
            f"the recording has none of the model's outputs ({', '.join(outputs)}); it has {', '.join(recorded)}",
            where=stored.origin,
            fix=f"{which}: {_write_mapped(target, pairs)}",
        )

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        return _recorded_tensors(recording, sample, wanted)

    environment = _recorded_environment(target.option("path"), target.option("environment"))
    folder = Path(target.option("path"))
    if (folder / FACTS_FILE).is_file():
        from parityscope.backends.tensorrt.recorded import engine_session

        engine = engine_session(folder, model, capture, run, target.option("pair", "name"))
        unrecorded = _skips_of_absent(model, target, Capture(), recording)
        yield replace(
            engine,
            absent=(*unrecorded, *engine.absent),
            environment={**engine.environment, **environment, "recording": stored.origin},
        )
        return
    yield Session(
        run=run,
        disturbs="as it was recorded",
        absent=tuple(_skips_of_absent(model, target, capture, recording)),
        environment={
            "recording": stored.origin,
            "recorded samples": str(len(stored.labels)),
            **environment,
        },
    )


def _pair_by_shape(model: Model, arrays: Mapping[str, np.ndarray]) -> tuple[bool, list[tuple[str, str]]]:
    """Whether the declared shapes leave one reading alone, and (recorded, output) in it; else what fits, in its order."""
    left = {
        value.name: [name for name, array in arrays.items() if fits_declared(value.shape, array.shape)]
        for value in model.outputs
    }
    pairs: dict[str, str] = {}
    while single := next((name for name, fitting in left.items() if len(fitting) == 1), None):
        (chosen,) = left.pop(single)
        pairs[single] = chosen
        left = {name: [each for each in fitting if each != chosen] for name, fitting in left.items()}
    for name, fitting in left.items():
        chosen = next((each for each in fitting if each not in pairs.values()), "")
        pairs.update({name: chosen} if chosen else {})
    found = [(pairs[value.name], value.name) for value in model.outputs if value.name in pairs]
    return not left, found or list(zip(arrays, (value.name for value in model.outputs), strict=False))


def _write_mapped(target: Target, pairs: Iterable[tuple[str, str]]) -> str:
    """The candidate as it is typed, with names that `map=` takes to the model's beside those that it has already."""
    written = [target.option("map"), *(f"{old}:{new}" for old, new in pairs)]
    return shlex.quote(format_target(with_option(target, "map", ",".join(filter(None, written)))))


def _recorded_environment(path: str, file: str) -> dict[str, str]:
    """What was recorded of the place: the file given, or environment.json in the recording's folder."""
    beside = Path(path) / ENVIRONMENT_FILE
    if file:
        return recorded_facts(Path(file))
    return recorded_facts(beside) if beside.is_file() else {}


def open_recording(path: str) -> tuple[Stored, tuple[str, ...]]:
    """The outputs in a file or folder, and the name of each sample's own file, where no model is known that they are of.

    Raises:
        ParityError: there are none, or they cannot be read without a model.
    """
    stored, files = _open_stored(None, Target(backend="saved", options=(("path", path),)))
    if not stored.labels or not stored.names(0):
        raise ParityError("the recording holds no samples", where=stored.origin, fix="record at least one inference")
    return stored, files


def _open_stored(model: Model | None, target: Target) -> tuple[Stored, tuple[str, ...]]:
    """The recording, and the name of each sample's own file (or folder); none where one file holds them all."""
    text = target.option("path")
    path = Path(text)
    if not text:
        raise ParityError("saved needs the recording", fix="write saved?path=outputs.npz")
    if not path.exists():
        raise ParityError(f"there is no {text}", fix="give the file or folder that the deployment wrote")
    if path.is_dir() and (path / "outputs").is_dir():
        path = path / "outputs"
    folders = folders_of_tensors(path) if path.is_dir() else ()
    if folders:
        stored = open_npy_folders(folders, f"{len(folders)} folders of .npy in {path}")
        return stored, stored.labels
    found = survey_folder(path, rest=frozenset({"npy"})) if path.is_dir() else None
    files = found.files if found else (path,)
    kind = found.kind if found else path.suffix.lower().removeprefix(".")
    origin = f"{len(files)} files in {path}" if found else str(path)
    runner = target.option("runner")
    shapes = _parse_shapes(target.option("shapes"))
    if runner and kind != "json":
        raise ParityError(f"only Polygraphy's files have runners, and {text} is none", fix="leave runner= out")
    if shapes and kind != "raw":
        raise ParityError(f"only raw bytes need shapes, and {text} is not that", fix="leave shapes= out")
    match kind:
        case "npz":
            stored = open_npz(files, origin)
        case "safetensors":
            stored = open_safetensors(files, origin)
        case "raw" if found and model is None:
            raise ParityError(
                f"{text} holds raw bytes, of which only a model says the types", fix="give the model as well"
            )
        case "raw" if found and model is not None:
            inside = frozenset(_values_inside(model))
            expected = Expected(values=settle_declarations(model.outputs), kind="output", shapes=shapes, inside=inside)
            stored = open_raw(path, expected)
        case "json" if not found and _is_exported(path):
            stored = open_exported(path, model.outputs if model else ())
        case "npy":
            stored = open_npy(files, origin, model.outputs[0].name if model and len(model.outputs) == 1 else "")
        case "json":
            stored = open_outputs(files, runner, f"Polygraphy's saved outputs {path}")
        case _:
            raise ParityError(
                f"{path.name} is of no kind that outputs can be read from",
                where=str(path),
                fix="give an .npz, .npy, .safetensors, a Polygraphy or trtexec .json, or a folder of those or of raw bytes",
            )
    own = tuple(file.name for file in files) if kind == "json" else stored.labels
    # A Polygraphy file may hold any number of iterations, and a folder of blobs may be one sample.
    alone = found is not None and len(own) == len(stored.labels) and all((path / name).exists() for name in own)
    return stored, own if alone else ()


def _is_exported(path: Path) -> bool:
    """Whether a JSON file is trtexec's: a list of objects whose first key is "name"."""
    try:
        with open_regular_file(path, path.name) as file:
            start = "".join(file.read(_PEEK).decode(errors="replace").split())
    except UNREADABLE as error:
        raise unreadable_error(path, error) from error
    return start.startswith(('[{"name":', "[]"))


def _parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for item in text.split(",") if text else []:
        name, colon, dims = item.rpartition(":")
        if colon and all(dim.isdecimal() for dim in dims.split("x") if dims):
            shapes[name] = tuple(int(dim) for dim in dims.split("x") if dims)
        else:
            raise ParityError(f"{item!r} is no shape", fix="write shapes=NAME:1x3x224x224,OTHER:1x10")
    return shapes


def _name_recorded(model: Model, target: Target, stored: Stored, match: Callable[[Sample], int]) -> _Recording:
    recorded = stored.names(0)
    known = {value.name for value in model.outputs} | _values_inside(model)
    renames = _parse_renames(target.option("map"), set(recorded), known)
    names: dict[str, str] = {}
    for old in recorded:
        new = renames.get(old, old)
        if new in names:
            raise ParityError(
                f"map= makes {new!r} of both {names[new]!r} and {old!r}",
                where=stored.origin,
                fix=f"take one of them out of map=, or rename {new!r} too",
            )
        names[new] = old
    return _Recording(
        stored=stored,
        names=names,
        outputs={one.name: one for one in model.outputs},
        match=match,
        rows=_count_rows(model) if target.option("pair") == ROWS else None,
    )


def _parse_renames(text: str, recorded: set[str], known: set[str]) -> dict[str, str]:
    """Old to new, as `map=` says; a name may hold colons itself, if only one reading makes sense."""
    renames: dict[str, str] = {}
    for item in text.split(",") if text else []:
        parts = item.split(":")
        readings = [(":".join(parts[:cut]), ":".join(parts[cut:])) for cut in range(1, len(parts))]
        fitting = [(old, new) for old, new in readings if old in recorded and new in known]
        if len(fitting) == 1 and fitting[0][0] not in renames:
            renames.update(fitting)
            continue
        old, new = readings[0] if readings else (item, "")
        close = difflib.get_close_matches(old, recorded) or sorted(recorded)
        raise ParityError(
            f"map={item} does not go from a recorded name to a name of the model",
            where=f"recorded: {', '.join(close)}" if old not in recorded else f"the model has no tensor {new!r}",
            fix="write map=RECORDED:MODEL with the exact names, separated by commas",
        )
    return renames


def _values_inside(model: Model) -> set[str]:
    """The names of all values that the nodes of the main graph compute."""
    return {str(value.name) for node in model.shared_graph().graph for value in node.outputs if value.name}


def _recorded_tensors(recording: _Recording, sample: Sample, wanted: list[str]) -> dict[str, np.ndarray]:
    stored = recording.stored
    index = recording.match(sample)
    missing = [name for name in wanted if recording.names[name] not in stored.names(index)]
    if missing:
        raise ParityError(
            f"sample {sample.index} ({stored.labels[index]}) has no {missing[0]!r}, which {stored.labels[0]} has",
            where=stored.origin,
            fix="record the same tensors for every sample",
        )
    arrays = stored.read(index, [recording.names[name] for name in wanted])
    if recording.rows is not None:
        arrays = {
            old: _cut_rows(sample, recording.rows(sample, name), arrays[old], stored.origin)
            for name, old in ((name, recording.names[name]) for name in wanted)
        }
    found = {}
    for name in wanted:
        declared = recording.outputs.get(name)
        found[name] = restore_lost_type(
            f"{name!r} was recorded",
            arrays[recording.names[name]],
            "" if declared is None else declared.dtype,
            where=stored.origin,
            fix="record it as float32, or in a .safetensors file",
        )
    return found


def _count_rows(model: Model) -> Callable[[Sample, str], int]:
    """How long the first axis of a model's tensor is for one sample, as far as the model says; else one."""
    first = {value.name: value.shape[0] for value in model.outputs if value.shape}

    def count(sample: Sample, name: str) -> int:
        declared = first.get(name)
        return declared if isinstance(declared, int) else sizes_in(model, sample).get(declared or "", 1)

    return count


def _cut_rows(sample: Sample, rows: int, array: np.ndarray, origin: str) -> np.ndarray:
    """The rows of a sample, of an array that holds those of all samples."""
    start = sample.index * rows
    if not array.ndim or start + rows > array.shape[0]:
        raise ParityError(
            f"sample {sample.name} has no rows in an array of the shape {list(array.shape)}",
            where=origin,
            fix="record all samples one after the other along the first axis, or judge fewer: --samples",
        )
    return array[start : start + rows]


def _skips_of_absent(model: Model, target: Target, capture: Capture, recording: _Recording) -> Iterator[Skip]:
    outputs = {value.name for value in model.outputs}
    for name in dict.fromkeys((*(value.name for value in model.outputs), *capture.tensors)):
        if name not in recording.names:
            fix = f"record it, or say which recorded tensor it is: {_write_mapped(target, [('RECORDED', name)])}"
            yield Skip(what=f"tensor {name}", reason="it was not recorded", fix=fix, asked=name in outputs)
    known = outputs | _values_inside(model) | {value.name for value in model.inputs}
    for name, old in recording.names.items():
        if name not in known:
            reason = "it was recorded, and the model has no tensor of that name"
            fix = f"if it is one of the model's: {_write_mapped(target, [(old, 'NAME')])}"
            yield Skip(what=f"tensor {name}", reason=reason, fix=fix)


BACKEND = Backend(
    name="saved",
    title="Outputs recorded elsewhere",
    called=("recording", "recorded"),
    opens={".json": "path", ".npy": "path", ".npz": "path", ".safetensors": "path", "/": "path"},
    options={
        "path": "the file or folder of outputs",
        "runner": "which runner of Polygraphy's file, when there are several",
        "map": "recorded names to the model's: old:new,old2:new2",
        "environment": "the JSON of `parityscope doctor` from there (default: environment.json in the folder)",
        "pair": "name (default: by file name where both sides have names), order (recording i belongs to sample i), or "
        "rows (one file holds all samples along the first axis)",
        "shapes": "shapes of raw bytes whose dimensions the model leaves open: name:1x3x4,other:1x10",
    },
    precisions=("f32", "tf32", "f16", "bf16", "int8"),
    observes=True,
    open=_open_session,
    plain=frozenset({"runner", "map", "pair", "shapes"}),
    files=frozenset({"path", "environment"}),
    words="a recording",
    recorded=True,
    reads_model=False,
    onnxruntime="perhaps",
    tensorrt="perhaps",
    untimed="recorded outputs have no time",
)
