"""Files of other programs: what they wrote is what is read, and no damaged file gets past a ParityError."""

from __future__ import annotations

import base64
import io
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from parityscope.case.formats import polygraphy, trtexec, view_as_declared
from parityscope.case.formats.exported import open_exported
from parityscope.case.formats.npz import open_npz, read_stacked_npz, write_npz
from parityscope.case.formats.safetensors_file import open_safetensors, open_stacked_safetensors
from parityscope.errors import ParityError
from parityscope.records import ValueInfo
from parityscope.trace import write_safetensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from parityscope.case.formats import Stored

T = TypeVar("T")
POLYGRAPHY = Path(sys.executable).with_name("polygraphy")
EVERY_FILE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "file": np.array([[1, -2]], dtype=np.int64),  # a name that numpy.savez cannot store
    "/a/b.c:0": np.array(3.5),  # slashes, a dot, a colon; no axis
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 4), dtype=np.float16),
}


def everything(stored: Stored, index: int) -> dict[str, np.ndarray]:
    return stored.read(index, stored.names(index))


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], array, strict=True)


def damage(path: Path, place: float, value: int, *, cut: bool) -> None:
    """Cuts the file at a place (a share of its length), or changes the byte there."""
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= value
    path.write_bytes(data)


def attempt(read: Callable[[], T]) -> T | ParityError:
    try:
        return read()
    except ParityError as error:
        return error


# ---- npz


def test_npz_keeps_names_dtypes_and_shapes(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", ARRAYS)
    stored = open_npz([tmp_path / "a.npz"], "here")
    assert_same(everything(stored, 0), ARRAYS)
    assert_same(stored.read(0, ["mask"]), {"mask": ARRAYS["mask"]})


def test_npz_written_by_numpy_is_read_whatever_its_order(tmp_path: Path) -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez_compressed(tmp_path / "a.npz", x=np.asfortranarray(array))
    found = everything(open_npz([tmp_path / "a.npz"], "here"), 0)
    assert_same(found, {"x": array.astype(np.float32)})


def test_npz_loses_bfloat16_and_the_declared_dtype_brings_it_back(tmp_path: Path) -> None:
    array = np.array([1.5, -3.0], dtype=ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", x=array)
    found = everything(open_npz([tmp_path / "a.npz"], "here"), 0)["x"]
    assert found.dtype == np.dtype("V2")
    assert_same({"x": view_as_declared(found, "bfloat16")}, {"x": array})
    assert view_as_declared(found, "float16").dtype == np.dtype(
        "V2"
    )  # numpy's own types are never lost, so this was not one


def test_npz_with_pickle_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ParityError, match=r"a\.npz cannot be read: x\.npy: Object arrays cannot be loaded"):
        everything(open_npz([tmp_path / "a.npz"], "here"), 0)
    with pytest.raises(ParityError, match="Object arrays cannot be loaded"):
        list(read_stacked_npz(tmp_path / "a.npz"))


def test_npz_with_one_name_twice_or_a_stranger_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(2))
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        archive.writestr("x.npy", buffer.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", buffer.getvalue())
    with zipfile.ZipFile(tmp_path / "stranger.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(ParityError, match=r"'x\.npy' twice"):
        open_npz([tmp_path / "twice.npz"], "here").names(0)
    with pytest.raises(ParityError, match=r"'notes\.txt', which is not a \.npy array"):
        open_npz([tmp_path / "stranger.npz"], "here").names(0)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_stacked_npz_gives_rows_with_a_leading_axis(tmp_path: Path, save: object) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    k = np.asfortranarray(np.arange(8).reshape(4, 2))
    assert callable(save)
    save(tmp_path / "a.npz", x=x, k=k)
    rows = list(read_stacked_npz(tmp_path / "a.npz"))
    assert [row.label for row in rows] == [f"row {index} of a.npz" for index in range(4)]
    for index, row in enumerate(rows):
        assert_same(dict(row.arrays), {"x": x[index : index + 1], "k": k[index : index + 1]})


def test_stacked_npz_of_unequal_lengths_says_both(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), k=np.zeros(3))
    with pytest.raises(ParityError, match="x has 4, k has 3"):
        list(read_stacked_npz(tmp_path / "a.npz"))


def test_stacked_scalar_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.float32(1))
    with pytest.raises(ParityError, match="it is a scalar"):
        list(read_stacked_npz(tmp_path / "a.npz"))


@EVERY_FILE
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255), cut=st.booleans())
@pytest.mark.parametrize("compressed", [False, True])
def test_no_damaged_npz_gives_a_traceback_or_other_values(
    tmp_path: Path, *, compressed: bool, place: float, value: int, cut: bool
) -> None:
    path = tmp_path / "a.npz"
    arrays = {"x": np.arange(12.0).reshape(3, 4), "k": np.arange(3)}
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    damage(path, place, value, cut=cut)
    # The checksums do not cover the archive's own names and dates, so some damage is harmless; the values never change.
    whole = attempt(lambda: [array.tobytes() for array in everything(open_npz([path], "here"), 0).values()])
    rows = attempt(lambda: [[array.tobytes() for array in row.arrays.values()] for row in read_stacked_npz(path)])
    for found, wanted in (
        (whole, [array.tobytes() for array in arrays.values()]),
        (rows, [[array[index].tobytes() for array in arrays.values()] for index in range(3)]),
    ):
        if isinstance(found, ParityError):
            assert found.where == str(path)
            assert found.fix
        else:
            assert found == wanted


def test_an_npz_whose_directory_swallowed_an_array_is_damaged(tmp_path: Path) -> None:
    """A length in the directory that reaches over the second entry: zipfile lists one array and is content."""
    np.savez(tmp_path / "a.npz", x=np.zeros(3), k=np.zeros(2))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    first, second = (data.index(b"PK\x01\x02", start) for start in (0, data.index(b"PK\x01\x02") + 4))
    data[first + 32 : first + 34] = (data.index(b"PK\x05\x06") - second).to_bytes(2, "little")  # length of its comment
    (tmp_path / "a.npz").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.namelist() == ["x.npy"]
    for read in (lambda path: open_npz([path], "here").names(0), lambda path: list(read_stacked_npz(path))):
        with pytest.raises(ParityError, match="lists 1 arrays and says that it holds 2"):
            read(tmp_path / "a.npz")


# ---- safetensors


def test_safetensors_of_every_dtype(tmp_path: Path) -> None:
    arrays = {"x": ARRAYS["x"], "scalar": np.array(2.5), "empty": ARRAYS["empty"], "mask": ARRAYS["mask"]}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        arrays[name] = np.array([1.5, -3.0], dtype=getattr(ml_dtypes, name))
    write_safetensors(tmp_path / "ours.safetensors", arrays)
    save_file(arrays, tmp_path / "theirs.safetensors")
    stored = open_safetensors([tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"], "here")
    assert_same(everything(stored, 0), arrays)
    assert_same(everything(stored, 1), arrays)


def test_stacked_safetensors(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    save_file({"x": x}, tmp_path / "a.safetensors")
    stored = open_stacked_safetensors(tmp_path / "a.safetensors", "here")
    assert len(stored.labels) == 3
    assert_same(everything(stored, 2), {"x": x[2:3]})
    save_file({"x": x, "k": np.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(ParityError, match=r"x is \[3, 4\], k is \[2\]|k is \[2\], x is \[3, 4\]"):
        open_stacked_safetensors(tmp_path / "b.safetensors", "here")


@EVERY_FILE
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255), cut=st.booleans())
def test_no_damaged_safetensors_gives_a_traceback(tmp_path: Path, *, place: float, value: int, cut: bool) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": np.arange(12.0).reshape(3, 4)}, path)
    damage(path, place, value, cut=cut)
    found = attempt(lambda: everything(open_safetensors([path], "here"), 0))
    assert isinstance(found, dict) or found.where == str(path)


# ---- polygraphy


def encoded(array: np.ndarray) -> dict[str, str]:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return {"array": base64.b64encode(buffer.getvalue()).decode(), "polygraphy_class": "ndarray"}


@pytest.mark.parametrize("name", ["inputs.json", "inputs"])
def test_polygraphy_reads_the_inputs_that_we_write(tmp_path: Path, name: str) -> None:
    from polygraphy.json import load_json

    large = np.arange(3000, dtype=np.float32)  # 16 KB of base64: left in the file
    samples = [{"x": ARRAYS["x"], "big": large}, {"x": -ARRAYS["x"], "big": -large}]
    path = tmp_path / name
    polygraphy.write_inputs(path, samples)
    files = [path] if path.is_file() else sorted(path.iterdir())
    theirs = load_json(str(path)) if path.is_file() else [load_json(str(file)) for file in files]
    ours = polygraphy.open_inputs(files, "here")
    assert len(theirs) == len(ours.labels) == 2
    for index, sample in enumerate(samples):
        assert_same(dict(theirs[index]), sample)
        assert_same(everything(ours, index), sample)


def test_polygraphy_reads_the_outputs_that_we_write(tmp_path: Path) -> None:
    from polygraphy.comparator import RunResults

    outputs = [({"y": ARRAYS["x"]}, 0.25), ({"y": 2 * ARRAYS["x"]}, 0.5)]
    polygraphy.write_outputs(tmp_path / "out.json", "ours", outputs)
    polygraphy.write_outputs(tmp_path / "out", "ours", outputs)
    results = RunResults.load(str(tmp_path / "out.json"))
    streamed = list(RunResults.load_streaming(str(tmp_path / "out")))
    for index, (arrays, seconds) in enumerate(outputs):
        assert results["ours"][index].runtime == streamed[index]["ours"][0].runtime == seconds
        assert_same(dict(results["ours"][index].items()), arrays)
        assert_same(dict(streamed[index]["ours"][0].items()), arrays)


@given(st.integers(0, 5000), st.sampled_from(["float32", "int64", "bool", "float16"]))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_polygraphy_round_trip_at_every_length(tmp_path: Path, count: int, dtype: str) -> None:
    array = np.arange(count).astype(dtype)
    polygraphy.write_inputs(tmp_path / "a.json", [{"x": array}])
    assert_same(everything(polygraphy.open_inputs([tmp_path / "a.json"], "here"), 0), {"x": array})


def test_what_polygraphy_saves_in_a_real_run(tmp_path: Path) -> None:
    import onnx

    text = (
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[N, 3] x, int64[N] k) => (float[N, 3] y, int64[N] z) { y = Relu(x) z = Neg(k) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "tiny.onnx")
    command = [POLYGRAPHY, "run", "tiny.onnx", "--onnxrt", "--iterations", "3", "--input-shapes", "x:[2,3]", "k:[2]"]
    for tail in (["i.json", "--save-outputs", "o.json"], ["i", "--save-outputs", "o", "--save-input-blob", "blobs"]):
        subprocess.run([*command, "--save-inputs", *tail], cwd=tmp_path, check=True, capture_output=True)
    for inputs, outputs in (
        ([tmp_path / "i.json"], [tmp_path / "o.json"]),
        (sorted((tmp_path / "i").iterdir()), sorted((tmp_path / "o").iterdir())),
    ):
        given_in = polygraphy.open_inputs(inputs, "here")
        given_out = polygraphy.open_outputs(outputs, "", "here")
        assert len(given_in.labels) == len(given_out.labels) == 3
        for index in range(3):
            sample, result = everything(given_in, index), everything(given_out, index)
            assert_same(result, {"y": np.maximum(sample["x"], 0), "z": -sample["k"]})
    values = tuple(
        ValueInfo(name=n, dtype=d, shape=s) for n, d, s in [("x", "float32", ("N", 3)), ("k", "int64", (2,))]
    )
    blobs = trtexec.open_raw(tmp_path / "blobs", trtexec.Expected(values=values, kind="input", shapes={"x": (2, 3)}))
    saved = polygraphy.open_inputs(sorted((tmp_path / "i").iterdir()), "here")
    for index in range(3):
        assert_same(everything(blobs, index), everything(saved, index))


def test_old_polygraphy_files_are_read(tmp_path: Path) -> None:
    array = np.arange(5, dtype=np.float32)
    buffer, packed = io.BytesIO(), io.BytesIO()
    np.save(buffer, array)
    np.savez(packed, array)
    mark = "polygraphy_serialized_json_type"
    latin = {"array": buffer.getvalue().decode("latin-1"), "__polygraphy_encoded_ndarray": mark}
    archive = {"array": base64.b64encode(packed.getvalue()).decode(), "__polygraphy_encoded_ndarray": mark}
    iteration = {
        "outputs": {
            "y": {"values": latin, "__polygraphy_encoded_LazyNumpyArray": mark},
            "z": {"values": archive, "polygraphy_class": "LazyNumpyArray"},
            "direct": encoded(array),
        },
        "__polygraphy_encoded_IterationResult": mark,
    }
    document = {"lst": [["old", [iteration]]], "__polygraphy_encoded_RunResults": mark}
    (tmp_path / "o.json").write_text(json.dumps(document), encoding="utf-8")
    stored = polygraphy.open_outputs([tmp_path / "o.json"], "old", "here")
    assert_same(everything(stored, 0), {"y": array, "z": array, "direct": array})


def test_several_runners_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    for folder, runner in (("a", "ort"), ("b", "trt")):
        polygraphy.write_outputs(tmp_path / folder, runner, [({"y": np.array([len(runner), ord(runner[0])])}, 0.0)])
    files = [tmp_path / "a/0000000000.json", tmp_path / "b/0000000000.json"]
    with pytest.raises(ParityError, match="of 2 runners: ort, trt"):
        polygraphy.open_outputs(files, "", "here")
    with pytest.raises(ParityError, match="no runner 'tr'") as caught:
        polygraphy.open_outputs(files, "tr", "here")
    assert caught.value.fix == "use one of: ort, trt"
    found = everything(polygraphy.open_outputs(files, "trt", "here"), 0)
    assert_same(found, {"y": np.array([3, ord("t")])})


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "cannot be read"),
        ("[{", "no whole JSON"),
        ("[1]", "holds a int, not Polygraphy's saved inputs"),
        ('{"lst": [], "polygraphy_class": "RunResults"}', r"holds outputs \(RunResults\)"),
        ('{"x": 1}', "tensor 'x': it is not an encoded array but a int"),
        ('{"x": {"tensor": "AAAA", "polygraphy_class": "Tensor"}}', "torch tensor"),
        ('{"x": {"array": "AAAA", "polygraphy_class": "ndarray"}}', "tensor 'x'"),
        ('{"x": {"array": 3, "polygraphy_class": "ndarray"}}', "not an encoded array"),
        ('{"x": {"array": "' + "A" * 5000 + '", "polygraphy_class": "ndarray"}}', "tensor 'x'"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_polygraphy_inputs(tmp_path: Path, document: str, problem: str) -> None:
    path = tmp_path / "i.json"
    path.write_text(document, encoding="utf-8")
    with pytest.raises(ParityError, match=problem) as caught:
        everything(polygraphy.open_inputs([path], "here"), 0)
    assert caught.value.where == str(path)
    assert caught.value.fix


def test_a_pickled_array_inside_polygraphys_json_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    entry = {"array": base64.b64encode(buffer.getvalue()).decode(), "polygraphy_class": "ndarray"}
    (tmp_path / "i.json").write_text(json.dumps({"x": entry}), encoding="utf-8")
    with pytest.raises(ParityError, match="Object arrays cannot be loaded"):
        everything(polygraphy.open_inputs([tmp_path / "i.json"], "here"), 0)


def test_writing_never_overwrites_a_folder_and_refuses_bfloat16(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(ParityError, match="is not empty"):
        polygraphy.write_inputs(tmp_path / "full", [{"x": np.zeros(1)}])
    with pytest.raises(ParityError, match="cannot hold bfloat16"):
        polygraphy.write_inputs(tmp_path / "a.json", [{"x": np.zeros(1, dtype=ml_dtypes.bfloat16)}])


# ---- trtexec

# Every type that a binding of an engine may have and that takes a whole byte or more (`_TYPES` packs none).
WHOLE = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "int64": np.int64,
    "int32": np.int32,
    "int8": np.int8,
    "uint8": np.uint8,
    "bool": np.bool_,
}


def numbers_of_type(dtype: type) -> np.ndarray:
    """Some of each: zero, one, the largest and the smallest of integers, NaN and infinities of floats."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.array([[True, False, True]])
    if kind.kind in "iu":
        return np.array([[0, np.iinfo(kind).max, np.iinfo(kind).min]], kind)
    least = -2 if kind == np.dtype(ml_dtypes.float8_e4m3fn) else -np.inf
    last = np.nan if kind.isbuiltin == 1 else 1.5  # numpy takes no NaN of ml_dtypes for another
    return np.array([[0.5, least, last]], np.float32).astype(kind)


@pytest.mark.parametrize(("word", "kind"), [("int4", ml_dtypes.int4), ("fp4", ml_dtypes.float4_e2m1fn)])
def test_four_bits_are_two_elements_to_a_byte_in_trtexecs_blobs(word: str, kind: type, tmp_path: Path) -> None:
    array = np.array([[1, -2, 4]], np.float32).astype(kind)
    values = (ValueInfo(name="y", dtype=array.dtype.name, shape=(1, 3)),)
    trtexec.write_blobs(tmp_path / "blobs", {"y": array})
    # int4: 1, -2, 4 are 0x1, 0xE, 0x4; e2m1: 0x2, 0xC, 0x6. The first one lies in the low half.
    expected = bytes([0xE1, 0x04] if word == "int4" else [0xC2, 0x06])
    assert (tmp_path / "blobs" / "y.bin").read_bytes() == expected
    (tmp_path / "dumped").mkdir()
    dumped = tmp_path / "dumped" / f"y.output.1.3.{word}.raw"
    dumped.write_bytes(expected)
    for folder, role in (("blobs", "input"), ("dumped", "output")):
        stored = trtexec.open_raw(tmp_path / folder, trtexec.Expected(values=values, kind=role, shapes={}))
        assert_same(everything(stored, 0), {"y": array})
    dumped.write_bytes(bytes(3))
    with pytest.raises(ParityError, match="needs 2 bytes, and y") as caught:
        trtexec.open_raw(tmp_path / "dumped", trtexec.Expected(values=values, kind="output", shapes={}))
    assert "two elements to a byte" in caught.value.fix


@pytest.mark.parametrize("word", WHOLE)
def test_every_type_goes_through_trtexecs_blobs_and_json(word: str, tmp_path: Path) -> None:
    array = numbers_of_type(WHOLE[word])
    values = (ValueInfo(name="y", dtype=array.dtype.name, shape=(1, 3)),)
    trtexec.write_blobs(tmp_path / "blobs", {"y": array})
    blobs = trtexec.open_raw(tmp_path / "blobs", trtexec.Expected(values=values, kind="input", shapes={}))
    assert_same(everything(blobs, 0), {"y": array})
    (tmp_path / "dumped").mkdir()
    array.tofile(tmp_path / "dumped" / f"y.output.1.3.{word}.raw")
    dumped = trtexec.open_raw(tmp_path / "dumped", trtexec.Expected(values=values, kind="output", shapes={}))
    assert_same(everything(dumped, 0), {"y": array})
    # As a C++ stream prints them: integers whole, floats with six digits, nan and inf bare.
    told = ", ".join(f"{int(one)}" if array.dtype.kind in "iub" else f"{float(one):g}" for one in array.flat)
    path = tmp_path / "out.json"
    path.write_text(f'[ {{ "name" : "y", "dimensions" : "1x3", "values" : [ {told} ] }} ]', encoding="utf-8")
    assert_same(everything(open_exported(path, values), 0), {"y": array})


@pytest.mark.parametrize("word", [word for word, dtype in WHOLE.items() if np.dtype(dtype).isbuiltin == 1])
def test_every_type_that_polygraphy_has_goes_through_its_json(word: str, tmp_path: Path) -> None:
    from polygraphy.comparator import RunResults
    from polygraphy.json import load_json

    array = numbers_of_type(WHOLE[word])
    polygraphy.write_inputs(tmp_path / "in.json", [{"x": array}])
    assert_same(dict(load_json(str(tmp_path / "in.json"))[0]), {"x": array})
    assert_same(everything(polygraphy.open_inputs([tmp_path / "in.json"], "here"), 0), {"x": array})
    polygraphy.write_outputs(tmp_path / "out.json", "ours", [({"y": array}, 0.5)])
    assert_same(dict(RunResults.load(str(tmp_path / "out.json"))["ours"][0].items()), {"y": array})
    assert_same(everything(polygraphy.open_outputs([tmp_path / "out.json"], "", "here"), 0), {"y": array})


def test_trtexec_exported_output(tmp_path: Path) -> None:
    # As trtexec writes it, line breaks and bare nan and inf included.
    path = tmp_path / "o.json"
    path.write_text(
        '[\n  { "name" : "y nan, inf"\n  , "dimensions" : "1x2x3"\n'
        '  , "values" : [ 1, -2.5, nan, inf, -inf, -nan ]\n  }\n'
        ', { "name" : "k"\n  , "dimensions" : "(2)"\n  , "values" : [ 9007199254740993, -1 ]\n  }\n'
        ', { "name" : "s"\n  , "dimensions" : ""\n  , "values" : [ 0.1 ]\n  }\n]\n',
        encoding="utf-8",
    )
    values = [ValueInfo(name="y nan, inf", dtype="float16", shape=None), ValueInfo(name="k", dtype="int64", shape=None)]
    found = everything(open_exported(path, values), 0)
    nan, inf = np.nan, np.inf
    wanted = {
        "y nan, inf": np.array([[[1, -2.5, nan], [inf, -inf, nan]]], dtype=np.float16),
        "k": np.array([2**53 + 1, -1]),  # exact: never through float64
        "s": np.array(0.1, dtype=np.float32),
    }
    assert_same(found, wanted)


@pytest.mark.parametrize(
    ("text", "dtype", "problem"),
    [
        ('[{"name": "y", "dimensions": "3", "values": [1, 2]}]', "float32", "reshape"),
        ('[{"name": "y", "dimensions": "1", "values": [1.5]}]', "int32", "holds a fraction"),
        ('[{"name": "y", "dimensions": "1", "values": [300]}]', "int8", "beyond int8"),
        ('[{"name": "y", "dimensions": "1", "values": [nan]}]', "int8", "cannot be read"),
        ('[{"name": "y", "values": [1]}]', "float32", "dimensions"),
        ('[{"name": "y", "dimensions": "1", "values": [1]}, {"name": "y"}]', "float32", "twice"),
        ('{"name": 1}', "float32", "cannot be read"),
        ("[{", "float32", "no whole JSON"),
    ],
)
def test_what_is_no_exported_output(tmp_path: Path, text: str, dtype: str, problem: str) -> None:
    (tmp_path / "o.json").write_text(text, encoding="utf-8")
    with pytest.raises(ParityError, match=problem):
        open_exported(tmp_path / "o.json", [ValueInfo(name="y", dtype=dtype, shape=None)])


def test_file_names_are_made_safe_as_trtexec_does() -> None:
    assert trtexec.file_name("/conv1/Conv:0.output.1.3.fp32.raw") == "_conv1_Conv_0.output.1.3.fp32.raw"
    assert trtexec.file_name("größe") == "gr____e"  # two bytes each in UTF-8
    # 73 = (150 - 3) // 2 of either end.
    assert trtexec.file_name("a" * 100 + "b" * 100) == "a" * 73 + "..." + "b" * 73


def test_dumped_bindings(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float16).reshape(1, 2, 3)
    scalar = np.array(7, dtype=np.int32)
    bf16 = np.array([1.5], dtype=ml_dtypes.bfloat16)
    long = "layer/" * 40
    array.tofile(tmp_path / "_a_b_0.output.1.2.3.fp16.raw")
    scalar.tofile(tmp_path / "s.output..int32.raw")
    bf16.tofile(tmp_path / trtexec.file_name(f"{long}.output.1.bf16.raw"))
    np.zeros(3).tofile(tmp_path / "x.input.3.fp32.raw")
    values = tuple(ValueInfo(name=name, dtype="float32", shape=None) for name in ("/a/b:0", "s", long))
    stored = trtexec.open_raw(tmp_path, trtexec.Expected(values=values, kind="output", shapes={}))
    assert_same(everything(stored, 0), {"/a/b:0": array, "s": scalar, long: bf16})


def test_outputs_whose_shape_the_run_decides(tmp_path: Path) -> None:
    # exportJSONOutput and Binding::dump of trtexec 11.1: the stream that gets the values gets that sentence too.
    text = """[
  { "name" : "boxes"
  , "dimensions" : "-1x2"
  , "values" : [ Final shape is 3x2 reported by the output allocator.
1, 2, 3, 4, nan, 6 ]
  }
, { "name" : "y"
  , "dimensions" : "2"
  , "values" : [ 1, 2 ]
  }
]"""
    (tmp_path / "out.json").write_text(text, encoding="utf-8")
    values = tuple(ValueInfo(name=name, dtype="float32", shape=None) for name in ("boxes", "y"))
    found = everything(open_exported(tmp_path / "out.json", values), 0)
    boxes = np.array([[1, 2], [3, 4], [np.nan, 6]], np.float32)
    assert_same(found, {"boxes": boxes, "y": np.array([1, 2], np.float32)})
    boxes.tofile(tmp_path / "boxes.output.-1.2.fp32.raw")
    with pytest.raises(ParityError, match="raw bytes have no shape") as caught:
        everything(trtexec.open_raw(tmp_path, trtexec.Expected(values=values, kind="output", shapes={})), 0)
    assert "&shapes=boxes:" in caught.value.fix
    expected = trtexec.Expected(values=values, kind="output", shapes={"boxes": (3, 2)})
    assert_same(everything(trtexec.open_raw(tmp_path, expected), 0), {"boxes": boxes})


def test_raw_bytes_are_counted_and_shapes_demanded(tmp_path: Path) -> None:
    np.zeros(5, dtype=np.float32).tofile(tmp_path / "x.bin")
    fixed = (ValueInfo(name="x", dtype="float32", shape=(2, 3)),)
    with pytest.raises(ParityError, match=r"'x' as float32 \[2, 3\] needs 24 bytes, and x\.bin has 20"):
        trtexec.open_raw(tmp_path, trtexec.Expected(values=fixed, kind="input", shapes={}))
    dynamic = (ValueInfo(name="x", dtype="float32", shape=("N", 3)),)
    with pytest.raises(ParityError, match=r"declares 'x' as \[N, 3\]") as caught:
        trtexec.open_raw(tmp_path, trtexec.Expected(values=dynamic, kind="input", shapes={}))
    assert caught.value.fix.startswith("say it: --shapes x:")
    given_shape = trtexec.Expected(values=dynamic, kind="input", shapes={"x": (5,)})
    assert_same(everything(trtexec.open_raw(tmp_path, given_shape), 0), {"x": np.zeros(5, dtype=np.float32)})


def test_raw_files_that_could_be_two_tensors_are_refused(tmp_path: Path) -> None:
    np.zeros(1, dtype=np.float32).tofile(tmp_path / "a_b.output.1.fp32.raw")
    values = tuple(ValueInfo(name=name, dtype="float32", shape=(1,)) for name in ("a/b", "a:b"))
    with pytest.raises(ParityError, match="may be any of a/b, a:b"):
        trtexec.open_raw(tmp_path, trtexec.Expected(values=values, kind="output", shapes={}))


def test_types_that_raw_bytes_cannot_be_read_as_are_refused(tmp_path: Path) -> None:
    (tmp_path / "y.output.2.e8m0.raw").write_bytes(b"ab")
    stored = trtexec.open_raw(tmp_path, trtexec.Expected(values=(), kind="output", shapes={}))
    with pytest.raises(ParityError, match="element type of 'y' is e8m0"):
        everything(stored, 0)


@pytest.mark.parametrize("large", [False, True])
def test_a_directory_that_no_samples_need_is_not_read(tmp_path: Path, large: bool) -> None:
    """An archive that is all directory: zipfile would hold it in memory, with an object for each entry."""
    nbytes = 80 << 20
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 9, 9, 0xFFFFFFFF if large else nbytes, 0, 0)
    if large:
        record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 9, 9, nbytes, 0)
        end = record + struct.pack("<4sIQI", b"PK\x06\x07", 0, nbytes, 1) + end
    with (tmp_path / "a.npz").open("wb") as file:
        file.truncate(nbytes)
        file.seek(nbytes)
        file.write(end)
    with pytest.raises(ParityError, match="its directory takes 80 MiB"):
        open_npz([tmp_path / "a.npz"], "a.npz").names(0)
