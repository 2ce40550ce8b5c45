"""Records what a deployed model really gets and gives, for `parityscope diagnose` to read on another machine.

Copy this one file next to your program; it needs numpy and Python 3.6 or later, and nothing of Parityscope:

    from parityscope_recorder import record

    record({"x": x}, {"y": y})                                  # after each inference
    record({"x": x}, {"y": y}, intermediates={"/conv1/Conv_output_0": h})

What goes in: tensors by the names that they have in the ONNX model; numpy arrays, torch tensors, or anything that
`numpy.asarray` takes. What comes out, one number a sample:

    recording/inputs/000000.npz     inputs by name
    recording/outputs/000000.npz    outputs and intermediate tensors by name
    recording/manifest.json         which is which; dtypes and shapes of the first sample; versions; nothing personal

The values are on disk when `record` returns, so buffers may be used again. A sample appears under its number when it
is whole: it is written in a directory `000000.part` and moved, its outputs first, so each file in `inputs` has its
twin in `outputs`. Several processes may record into one directory. A program that is killed can leave a `.part`
directory behind; nothing reads it and it can be deleted.

The npz files are written here rather than by `numpy.savez`, which takes tensor names as Python arguments and so
cannot store a tensor called "file".
"""

import json
import os
import platform
import re
import shutil
import time
import zipfile

import numpy as np

SCHEMA = "parityscope-recording/1"
_NUMBERED = re.compile(r"^(\d{6})\.npz$")
_LIMIT = 10**6  # six digits, so that the order of the names is the order of the samples
_MOVING_S = 0.2  # chosen: far longer than moving a file within one directory tree takes
_PLAIN_KINDS = "biufcSU"  # numpy's kinds that an npz file holds without pickle
# Formats that numpy does not have; each value of theirs is a float32 value, so widening loses nothing.
_WIDENED = re.compile(r"^(torch\.)?(bfloat16|float8_\w+|float6_\w+|float4_\w+)$")


class RecordingError(ValueError):
    """What cannot be recorded; the message ends with the way to mend it."""

    def __init__(self, problem, fix):
        super().__init__(f"{problem}\n  fix: {fix}")


def record(inputs, outputs, intermediates=None, directory="recording"):
    """Appends one sample to the recording in `directory` and returns its number.

    Args:
        inputs: Tensors that went into the model, by name.
        outputs: Tensors that came out of it, by name.
        intermediates: Tensors from inside the model, by name, where the deployment can give them.
        directory: Where the recording is; it is made, or continued behind its last sample.

    Raises:
        RecordingError: a tensor that is no plain array, a name that cannot be stored, or names or dtypes that differ
            from the recording's first sample.
    """
    taken = {}
    widened = {}
    for kind, tensors in (("inputs", inputs), ("outputs", outputs), ("intermediates", intermediates or {})):
        pairs = [(name, _plain(kind, name, value)) for name, value in tensors.items()]
        taken[kind] = {name: array for name, (array, _) in pairs}
        widened.update({name: original for name, (_, original) in pairs if original})
    _check_names(taken)
    directory = os.path.abspath(os.fspath(directory))
    for folder in ("inputs", "outputs"):
        os.makedirs(os.path.join(directory, folder), exist_ok=True)
    manifest = _manifest(taken, widened)
    _check_manifest(directory, manifest)
    _check_twins(directory)
    number, staging = _claim(directory)
    try:
        _write_npz(os.path.join(staging, "inputs.npz"), taken["inputs"])
        _write_npz(os.path.join(staging, "outputs.npz"), {**taken["outputs"], **taken["intermediates"]})
        _publish(directory, staging, number, manifest)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return number


def _plain(kind, name, value):
    """(array in C order and little-endian, name of the format it was widened from or "")."""
    where = f"the tensor {name!r} of {kind}"
    original = ""
    if hasattr(value, "detach"):  # a torch tensor: numpy() refuses bfloat16, gradients and other devices
        value = value.detach()
        if _WIDENED.match(str(value.dtype)):
            original = str(value.dtype).replace("torch.", "")
            value = value.float()
        value = value.cpu().numpy()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise RecordingError(
            f"{where} cannot be turned into an array: {error}", "pass a numpy array that lies in host memory"
        ) from error
    if _WIDENED.match(array.dtype.name):
        original = array.dtype.name
        array = array.astype(np.float32)
    if array.dtype.kind == "O":
        raise RecordingError(
            f"{where} is an array of Python objects",
            "give all its rows the same length and a dtype: numpy.asarray(value, dtype=numpy.float32)",
        )
    if array.dtype.kind not in _PLAIN_KINDS or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        raise RecordingError(
            f"{where} has dtype {array.dtype}, which a recording cannot hold",
            "convert it first, for example value.astype(numpy.float64)",
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C"), original


def _check_names(taken):
    for kind in ("inputs", "outputs"):
        if not taken[kind]:
            raise RecordingError(f"there are no {kind}", "pass at least one tensor by name")
    for kind, tensors in taken.items():
        for name in tensors:
            if not isinstance(name, str) or not name or "\0" in name or name.endswith(".npy"):
                raise RecordingError(
                    f"{name!r} cannot be the name of a tensor of {kind}",
                    "use the tensor's name in the ONNX model: a string that is not empty and does not end in .npy",
                )
    twice = sorted(set(taken["outputs"]) & set(taken["intermediates"]))
    if twice:
        raise RecordingError(f"{twice[0]!r} is both an output and an intermediate", "pass it once, in outputs")


def _manifest(taken, widened):
    def described(tensors):
        return {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in tensors.items()}

    return {
        "schema": SCHEMA,
        "inputs": list(taken["inputs"]),
        "outputs": list(taken["outputs"]),
        "intermediates": list(taken["intermediates"]),
        "first_sample": {kind: described(tensors) for kind, tensors in taken.items()},
        "widened_to_float32": widened,
        "recorder": {"language": "python", "python": platform.python_version(), "numpy": np.__version__},
    }


def _check_manifest(directory, manifest):
    """Refuses a sample that does not belong to the recording that is there: two programs must not mix."""
    path = os.path.join(directory, "manifest.json")
    elsewhere = f"record into another directory, or delete this one: {directory}"
    try:
        with open(path, encoding="utf-8") as file:
            there = json.load(file)
        first = {kind: _dtypes(there, kind) for kind in manifest["first_sample"]}
        schema = there["schema"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path} is not the manifest of a recording", elsewhere) from error
    if schema != SCHEMA:
        raise RecordingError(f"{path} has schema {schema!r}, not {SCHEMA!r}", elsewhere)
    for kind, dtypes in first.items():
        this = _dtypes(manifest, kind)
        if this != dtypes:
            raise RecordingError(f"this sample has the {kind} {this}, the recording has {dtypes}", elsewhere)


def _dtypes(manifest, kind):
    return {name: entry["dtype"] for name, entry in manifest["first_sample"][kind].items()}


def _check_twins(directory):
    """Refuses to go on behind half a sample: readers pair files by their order, so all that follow would be shifted."""
    orphans = _numbers(directory, "outputs") - _numbers(directory, "inputs")
    if not orphans:
        return
    time.sleep(_MOVING_S)  # another process may be between its two moves
    orphans &= _numbers(directory, "outputs") - _numbers(directory, "inputs")
    if orphans:
        path = os.path.join(directory, "outputs", f"{min(orphans):06d}.npz")
        raise RecordingError(f"{path} has no twin in inputs: a program was killed while it recorded", f"delete {path}")


def _numbers(directory, folder):
    found = map(_NUMBERED.match, os.listdir(os.path.join(directory, folder)))
    return {int(match.group(1)) for match in found if match}


def _claim(directory):
    """(number, staging directory) of the next sample; making the directory is what takes the number."""
    number = max(_numbers(directory, "inputs"), default=-1) + 1
    while number < _LIMIT:
        staging = os.path.join(directory, f"{number:06d}.part")
        try:
            os.mkdir(staging)
        except FileExistsError:
            number += 1
            continue
        if not os.path.exists(os.path.join(directory, "inputs", f"{number:06d}.npz")):
            return number, staging
        os.rmdir(staging)  # another process finished this number between the listing and the claim
        number += 1
    raise RecordingError(f"{directory} holds {_LIMIT} samples, which is the limit", "use another directory")


def _write_npz(path, arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # A ZipInfo of our own has the fixed date 1980-01-01: equal samples give equal files.
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _publish(directory, staging, number, manifest):
    if not os.path.exists(os.path.join(directory, "manifest.json")):
        temporary = os.path.join(staging, "manifest.json")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=2, ensure_ascii=False)
            file.write("\n")
        os.replace(temporary, os.path.join(directory, "manifest.json"))
    for folder in ("outputs", "inputs"):
        destination = os.path.join(directory, folder, f"{number:06d}.npz")
        os.replace(os.path.join(staging, folder + ".npz"), destination)
