"""Every kind of DATA gives the same samples, and whatever does not fit the model is one clear error."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from PIL import Image
from safetensors.numpy import save_file

from parityscope.case import load_inputs, load_model
from parityscope.case.formats import polygraphy
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from parityscope.case import Inputs, Model

COUNT = 3
SAMPLES: list[dict[str, np.ndarray]] = [
    {
        "x": np.arange(12, dtype=np.float32).reshape(1, 3, 4) + 100 * index,
        "k": np.array([[index, 7]], dtype=np.int64),
    }
    for index in range(COUNT)
]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    text = "(float[N, 3, W] x, int64[N, 2] k) => (float[N, 3, W] y, int64[N, 2] z) { y = Relu(x) z = Neg(k) }"
    return parsed(tmp_path, text)


def parsed(folder: Path, text: str) -> Model:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), folder / "m.onnx")
    return load_model(folder / "m.onnx")


def stacked() -> dict[str, np.ndarray]:
    return {name: np.concatenate([sample[name] for sample in SAMPLES]) for name in ("x", "k")}


def npz(folder: Path) -> dict[str, Any]:
    for index, sample in enumerate(SAMPLES):
        np.savez(folder / f"{index:06d}.npz", **sample)
    return {"data": folder}


def recording(folder: Path) -> dict[str, Any]:
    for part in ("inputs", "outputs"):
        (folder / part).mkdir()
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    npz(folder / "inputs")
    return {"data": folder}


def stacked_npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "all.npz", **stacked())
    return {"data": folder / "all.npz", "stacked": True}


def stacked_and_compressed(folder: Path) -> dict[str, Any]:
    np.savez_compressed(folder / "all.npz", **stacked())
    return {"data": str(folder / "all.npz"), "stacked": True}


def safetensors(folder: Path) -> dict[str, Any]:
    for index, sample in enumerate(SAMPLES):
        save_file(sample, folder / f"{index}.safetensors")
    return {"data": folder}


def stacked_safetensors(folder: Path) -> dict[str, Any]:
    save_file(stacked(), folder / "all.safetensors")
    return {"data": folder / "all.safetensors", "stacked": True}


def polygraphy_file(folder: Path) -> dict[str, Any]:
    polygraphy.write_inputs(folder / "in.json", SAMPLES)
    return {"data": folder / "in.json"}


def polygraphy_folder(folder: Path) -> dict[str, Any]:
    polygraphy.write_inputs(folder / "in", SAMPLES)
    return {"data": folder / "in"}


def blobs(folder: Path) -> dict[str, Any]:
    for index, sample in enumerate(SAMPLES):
        place = folder / f"{index:010d}"
        place.mkdir()
        for name, array in sample.items():
            array.tofile(place / f"{name}.bin")
    return {"data": folder, "shapes": {"x": (1, 3, 4), "k": (1, 2)}}


LOADER = """
import numpy as np
from neighbour import offset

def samples():
    print("this must not reach stdout")
    x, k = np.empty((1, 3, 4), np.float32), np.empty((1, 2), np.int64)
    for index in range(3):
        x[:] = np.arange(12).reshape(1, 3, 4) + offset * index  # the same buffers each time
        k[:] = [[index, 7]]
        yield {"x": x, "k": k}
"""


def loader(folder: Path) -> dict[str, Any]:
    (folder / "load.py").write_text(LOADER, encoding="utf-8")
    (folder / "neighbour.py").write_text("offset = 100\n", encoding="utf-8")
    return {"data": f"{folder}/load.py:samples"}


PREPROCESS = """
import numpy as np

def prepare(image):
    assert image.dtype == np.uint8 and image.shape == (3, 4, 3), image.shape
    index = int(image[0, 0, 0])
    return {"x": (np.arange(12) + 100 * index).reshape(1, 3, 4).astype(np.float32), "k": np.array([[index, 7]])}
"""


def images(folder: Path) -> dict[str, Any]:
    (folder / "pages").mkdir()
    (folder / "prepare.py").write_text(PREPROCESS, encoding="utf-8")
    for index in range(COUNT):
        Image.new("RGB", (4, 3), (index, 0, 0)).save(folder / "pages" / f"{index}.png")
    (folder / "pages" / "Thumbs.db").write_bytes(b"?")
    return {"data": folder / "pages", "preprocess": f"{folder}/prepare.py:prepare"}


KINDS = [
    npz,
    recording,
    stacked_npz,
    stacked_and_compressed,
    safetensors,
    stacked_safetensors,
    polygraphy_file,
    polygraphy_folder,
    blobs,
    loader,
    images,
]


def load(model: Model, folder: Path, **how: Any) -> Inputs:
    return load_inputs(model, how.pop("data"), spool=folder / "spool", **how)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_samples_and_digest(
    model: Model, tmp_path: Path, data: Path, kind: Callable[[Path], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = load(model, tmp_path, **kind(data))
    (tmp_path / "plain").mkdir()
    assert inputs.sha256 == load(model, tmp_path, **npz(tmp_path / "plain")).sha256
    assert len(inputs) == COUNT
    assert inputs.indices == (0, 1, 2)
    assert inputs.names == ("x", "k")
    assert not inputs.generated
    assert inputs.seed is None
    for index in (2, 0, 1):  # at random
        sample = inputs.sample(index)
        assert sample.index == index
        assert list(sample.arrays) == ["x", "k"]
        for name, array in SAMPLES[index].items():
            np.testing.assert_array_equal(sample.arrays[name], array, strict=True)
            assert sample.arrays[name].flags.c_contiguous
    assert [sample.index for sample in inputs] == [0, 1, 2]
    if kind is images:
        assert inputs.sample(1).original == data / "pages" / "1.png"
    assert capsys.readouterr().out == ""
    with pytest.raises(IndexError):
        inputs.sample(COUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_first_samples_are_taken(
    model: Model, tmp_path: Path, data: Path, kind: Callable[[Path], dict[str, Any]]
) -> None:
    inputs = load(model, tmp_path, samples=2, **kind(data))
    assert [sample.arrays["k"][0, 0] for sample in inputs] == [0, 1]


def test_one_npz_is_one_sample(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **SAMPLES[1])
    inputs = load(model, tmp_path, data=tmp_path / "a.npz")
    assert [sample.name for sample in inputs] == ["a.npz"]


@pytest.mark.parametrize(
    ("change", "problem", "fix"),
    [
        ({"x": None}, "input 'x' is missing", "add an array called 'x'"),
        ({"x": None, "X0": np.zeros(1)}, "input 'x' is missing; the sample has 'X0', 'k'", "add an array called 'x'"),
        ({"k": None, "k0": SAMPLES[0]["k"]}, "'k' is missing", "rename 'k0' to 'k'"),
        ({"extra": np.zeros(1)}, "'extra' is no input of the model; its inputs are 'x', 'k'", "leave 'extra' out"),
        ({"k": np.zeros((1, 2), np.int32)}, r"expected int64 \[N, 2\], found int32 \[1, 2\]", ".astype(np.int64)"),
        ({"x": np.zeros((1, 3, 4))}, r"expected float32 \[N, 3, W\], found float64", ".astype(np.float32)"),
        ({"x": np.zeros((1, 3, 4), ml_dtypes.bfloat16)}, "found void16", ".astype(np.float32)"),
        ({"x": np.array([[["a"]]])}, "found str", ".astype(np.float32)"),
        ({"x": np.zeros((3, 4), np.float32)}, r"found the shape \[3, 4\]", "array[np.newaxis]"),
        ({"x": np.zeros((1, 5, 4), np.float32)}, r"expected float32 \[N, 3, W\], found the shape", "shape [N, 3, W]"),
        (
            {"x": np.zeros((2, 3, 4), np.float32)},
            "'N' is 2 at axis 0 of 'x' and 1 at axis 0 of 'k'",
            "same size along 'N'",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_told_with_its_place(
    model: Model, tmp_path: Path, change: dict[str, Any], problem: str, fix: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(folder / "a.npz", **SAMPLES[0])
    np.savez(folder / "b.npz", **{name: array for name, array in {**SAMPLES[1], **change}.items() if array is not None})
    with pytest.raises(ParityError, match=problem) as caught:
        load(model, tmp_path, data=folder)
    assert caught.value.where.startswith("sample 1 (b.npz)")
    assert fix in caught.value.fix


def test_layout_and_stacking_are_recognised_in_the_fix(tmp_path: Path) -> None:
    made = parsed(tmp_path, "(float[1, 3, 8, 6] x) => (float[1, 3, 8, 6] y) { y = Relu(x) }")
    np.savez(tmp_path / "nhwc.npz", x=np.zeros((1, 8, 6, 3), np.float32))
    np.savez(tmp_path / "many.npz", x=np.zeros((5, 3, 8, 6), np.float32))
    with pytest.raises(ParityError) as caught:
        load(made, tmp_path, data=tmp_path / "nhwc.npz")
    assert "array.transpose(0, 3, 1, 2)" in caught.value.fix
    with pytest.raises(ParityError) as caught:
        load(made, tmp_path, data=tmp_path / "many.npz")
    assert "--stacked" in caught.value.fix
    assert len(load(made, tmp_path, data=tmp_path / "many.npz", stacked=True)) == 5


def test_python_objects_from_a_loader_are_refused(model: Model, tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(
        "import numpy as np\ndef f():\n  yield {'x': np.array([None]), 'k': np.zeros((1, 2), int)}\n", encoding="utf-8"
    )
    with pytest.raises(ParityError, match="an array of Python objects") as caught:
        load(model, tmp_path, data=f"{tmp_path}/load.py:f")
    assert "np.asarray(rows, dtype=np.float32)" in caught.value.fix


def test_bfloat16_inputs_survive_npz_and_the_spool(tmp_path: Path) -> None:
    made = parsed(tmp_path, "(bfloat16[2] x) => (bfloat16[2] y) { y = Identity(x) }")
    array = np.array([1.5, -3.0], dtype=ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", x=array)
    (tmp_path / "load.py").write_text(
        "import numpy as np, ml_dtypes\ndef f():\n  yield {'x': np.array([1.5, -3], ml_dtypes.bfloat16)}\n",
        encoding="utf-8",
    )
    save_file({"x": array}, tmp_path / "a.safetensors")
    kinds = [tmp_path / "a.npz", f"{tmp_path}/load.py:f", tmp_path / "a.safetensors"]
    found = [load(made, tmp_path, data=kind) for kind in kinds]
    for inputs in found:
        np.testing.assert_array_equal(inputs.sample(0).arrays["x"], array, strict=True)
    assert len({inputs.sha256 for inputs in found}) == 1


def test_text_inputs(tmp_path: Path) -> None:
    made = parsed(tmp_path, "(string[N] x) => (string[N] y) { y = Identity(x) }")
    np.savez(tmp_path / "a.npz", x=np.array(["one", "two"]))
    assert load(made, tmp_path, data=tmp_path / "a.npz").sample(0).arrays["x"].tolist() == ["one", "two"]


# ---- NaN, emptiness


@pytest.mark.parametrize("kind", [npz, stacked_npz])
def test_a_sample_with_nan_is_skipped_and_infinity_is_not(
    model: Model, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], dict[str, Any]]
) -> None:
    changed = [{name: array.copy() for name, array in sample.items()} for sample in SAMPLES]
    changed[0]["x"][0, 0, 0] = np.inf
    changed[1]["x"][0, :, 0] = np.nan
    monkeypatch.setattr(sys.modules[__name__], "SAMPLES", changed)
    inputs = load(model, tmp_path, **kind(data))
    assert inputs.indices == (0, 2)
    assert len(inputs) == 2
    assert [sample.arrays["k"][0, 0] for sample in inputs] == [0, 2]
    (skip,) = inputs.skipped
    assert skip.what.startswith("sample 1 (")
    assert "'x' holds 3 NaN" in skip.reason
    assert skip.asked
    with pytest.raises(IndexError):
        inputs.sample(1)


def test_nan_everywhere_and_no_samples_at_all_are_errors(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full((1, 3, 4), np.nan, np.float32), k=SAMPLES[0]["k"])
    with pytest.raises(ParityError, match="every sample has a NaN"):
        load(model, tmp_path, data=tmp_path / "a.npz")
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 3, 4), np.float32), k=np.zeros((0, 2), np.int64))
    (tmp_path / "load.py").write_text("def f():\n  return []\n", encoding="utf-8")
    (tmp_path / "in.json").write_text("[]", encoding="utf-8")
    for how in (
        {"data": tmp_path / "none.npz", "stacked": True},
        {"data": f"{tmp_path}/load.py:f"},
        {"data": tmp_path / "in.json"},
    ):
        with pytest.raises(ParityError, match="there are no samples"):
            load(model, tmp_path, **how)
    (tmp_path / "void").mkdir()
    with pytest.raises(ParityError, match="no samples in void"):
        load(model, tmp_path, data=tmp_path / "void")


# ---- what cannot be read


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("gone.npz", None, "there is no"),
        ("a.npz", b"PK\x03\x04 cut", "cannot be read"),
        ("a.npz", b"", "cannot be read"),
        ("a.safetensors", b"", "cannot be read|not a complete safetensors"),
        ("a.json", b"\xff\xfe", "not text in UTF-8"),
        ("a.npy", b"", "no kind of data"),
        ("a.py", b"", "no kind of data"),
        ("a.doc", b"", "no kind of data"),
        ("a.tar.gz", b"", "no kind of data"),
    ],
)
def test_unreadable_files(model: Model, tmp_path: Path, name: str, content: bytes | None, problem: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ParityError, match=problem) as caught:
        load(model, tmp_path, data=tmp_path / name)
    assert caught.value.fix


def test_a_folder_of_two_kinds_is_refused(model: Model, tmp_path: Path, data: Path) -> None:
    npz(data)
    save_file(SAMPLES[0], data / "0.safetensors")
    with pytest.raises(ParityError, match=r"2 kinds: 0\.safetensors \(safetensors\), 000000\.npz"):
        load(model, tmp_path, data=data)


def test_a_file_that_changed_after_the_check_is_noticed(model: Model, tmp_path: Path, data: Path) -> None:
    inputs = load(model, tmp_path, **npz(data))
    np.savez(data / "000001.npz", x=SAMPLES[0]["x"].astype(np.float64), k=SAMPLES[0]["k"])
    (data / "000002.npz").unlink()
    with pytest.raises(ParityError, match="found float64"):
        inputs.sample(1)
    with pytest.raises(ParityError, match=r"there is no 000002\.npz"):
        inputs.sample(2)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("def g(): pass", "has no function 'f'"),
        ("def f(: pass", "importing load.py failed: SyntaxError"),
        ("import nowhere_at_all", "importing load.py failed: ModuleNotFoundError"),
        ("def f():\n  yield {'x': X, 'k': K}\n  1/0", "making sample 1 failed: ZeroDivisionError"),
        ("def f():\n  raise SystemExit(3)", "failed: SystemExit: 3"),
        ("def f(): return 3", "failed: TypeError"),
        ("def f(): return {'x': X, 'k': K}", "returned a dict, not an iterable"),
        ("def f(): return [X]", "gave a ndarray, not a dict"),
        ("def f(): return [{1: X}]", "not a dict of arrays"),
        ("def f(): return [{'x': [[1], [2, 3]], 'k': K}]", "turning 'x' of sample 0 into an array failed"),
        ("def f(needed): return []", "failed: TypeError"),
    ],
)
def test_a_loader_that_fails_is_named_with_its_error(model: Model, tmp_path: Path, body: str, problem: str) -> None:
    head = "import numpy as np\nX, K = np.zeros((1, 3, 4), np.float32), np.zeros((1, 2), np.int64)\n"
    (tmp_path / "load.py").write_text(head + body, encoding="utf-8")
    before = list(sys.path)
    with pytest.raises(ParityError, match=problem) as caught:
        load(model, tmp_path, data=f"{tmp_path}/load.py:f")
    assert "load.py:f" in caught.value.where or "load.py:f" in caught.value.problem
    assert caught.value.fix
    if "failed" in problem:
        assert caught.value.__cause__ is not None
    assert sys.path == before


# ---- images


def test_images_are_rgb_upright_and_8_bit(tmp_path: Path, data: Path) -> None:
    from parityscope.case.formats.images import read_image

    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    upright = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation 6: the stored rows are the columns of the picture; turn clockwise to see it
    upright.save(data / "plain.png")
    upright.save(data / "turned.png", exif=exif)
    Image.fromarray(pixels[:, :, 0]).save(data / "grey.png")
    np.testing.assert_array_equal(read_image(data / "plain.png"), pixels, strict=True)
    np.testing.assert_array_equal(read_image(data / "turned.png"), np.rot90(pixels, -1), strict=True)
    np.testing.assert_array_equal(read_image(data / "grey.png"), np.repeat(pixels[:, :, :1], 3, axis=2), strict=True)
    Image.fromarray(np.zeros((2, 2), dtype=np.uint16)).save(data / "deep.png")
    upright.save(data / "two.tiff", save_all=True, append_images=[upright])
    (data / "cut.png").write_bytes((data / "plain.png").read_bytes()[:50])
    for name, problem in (("deep.png", "not 8 bits"), ("two.tiff", "2 frames"), ("cut.png", "cannot be read")):
        with pytest.raises(ParityError, match=problem) as caught:
            read_image(data / name)
        assert caught.value.where == str(data / name)


def test_images_need_a_preprocessing_that_works(model: Model, tmp_path: Path, data: Path) -> None:
    how = images(data)
    with pytest.raises(ParityError, match="nothing says how the model wants them") as caught:
        load(model, tmp_path, data=how["data"])
    assert "--preprocess file.py:function" in caught.value.fix
    (tmp_path / "prepare.py").write_text(
        "def array(i): return i\ndef fails(i): 1/0\ndef none(i): pass\n", encoding="utf-8"
    )
    for name, problem in (
        ("array", "gave one array, and the model has 2 inputs: x, k"),
        ("fails", r"preprocessing 0\.png failed: ZeroDivisionError"),
        ("none", "gave a NoneType"),
    ):
        with pytest.raises(ParityError, match=problem):
            load(model, tmp_path, data=how["data"], preprocess=f"{tmp_path}/prepare.py:{name}")


def test_one_array_is_enough_for_a_single_input(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, "(uint8[H, W, 3] x) => (uint8[H, W, 3] y) { y = Identity(x) }")
    Image.new("RGB", (4, 3), (9, 8, 7)).save(data / "a.jpg", quality=100)
    (tmp_path / "prepare.py").write_text("def same(image): return image\n", encoding="utf-8")
    inputs = load(made, tmp_path, data=data, preprocess=f"{tmp_path}/prepare.py:same")
    assert inputs.sample(0).arrays["x"].shape == (3, 4, 3)


def test_without_pillow_the_error_says_how_to_get_it(
    model: Model, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = images(data)
    monkeypatch.setitem(sys.modules, "PIL", None)  # what an import of a package that is not there looks like
    with pytest.raises(ParityError, match="needs Pillow") as caught:
        load(model, tmp_path, **how)
    assert caught.value.fix == "pip install 'parityscope[images]'"


# ---- options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"preprocess": "p.py:f"}, "preprocessing is for a folder of images"),
        ({"samples": 0}, "0 samples cannot be judged"),
        ({"shapes": {"q": (1,)}}, "there is no input 'q'"),
        ({"shapes": {"x": (1, 5, 4)}}, r"expected float32 \[N, 3, W\], found the shape \[1, 5, 4\]"),
        ({"shapes": {"x": (1, 3, 4), "k": (2, 2)}}, "'N' is 1 at axis 0 of 'x' and 2 at axis 0 of 'k'"),
        ({"shapes": {"x": (1, 3, -4)}}, "is not a shape"),
        ({"shapes": {"x": (1, 3, 9)}}, r"the shape is \[1, 3, 4\] and \[1, 3, 9\] was asked for"),
    ],
)
def test_options_that_do_not_fit(
    model: Model, tmp_path: Path, data: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParityError, match=problem) as caught:
        load(model, tmp_path, **npz(data), **options)
    assert caught.value.fix


def test_only_arrays_can_be_stacked(model: Model, tmp_path: Path, data: Path) -> None:
    with pytest.raises(ParityError, match=r"only \.npz and \.safetensors can be stacked") as caught:
        load(model, tmp_path, **polygraphy_folder(data), stacked=True)
    assert caught.value.fix


def test_a_spool_that_cannot_be_written_is_an_error(model: Model, tmp_path: Path, data: Path) -> None:
    how = loader(data)
    (tmp_path / "spool").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(ParityError, match="cannot be written"):
        load(model, tmp_path, **how)


# ---- memory, digest


@pytest.mark.parametrize("kind", [stacked_npz, stacked_and_compressed, loader, polygraphy_file, polygraphy_folder, npz])
def test_memory_stays_at_a_few_samples(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], dict[str, Any]]
) -> None:
    count, nbytes = 40, 1 << 20
    made = parsed(tmp_path, "(float[N, M] x) => (float[N, M] y) { y = Relu(x) }")
    samples = [{"x": np.full((1, nbytes // 4), index, np.float32), "k": np.zeros((1, 1))} for index in range(count)]
    monkeypatch.setattr(sys.modules[__name__], "SAMPLES", [{"x": sample["x"]} for sample in samples])
    monkeypatch.setattr(sys.modules[__name__], "stacked", lambda: {"x": np.concatenate([s["x"] for s in samples])})
    how = kind(data)
    if kind is loader:
        (data / "load.py").write_text(
            f"import numpy as np\ndef samples():\n  for i in range({count}):\n"
            f"    yield {{'x': np.full((1, {nbytes // 4}), i, np.float32)}}\n",
            encoding="utf-8",
        )
    tracemalloc.start()
    try:
        inputs = load(made, tmp_path, **how)
        seen = [float(sample.arrays["x"][0, -1]) for sample in inputs]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == list(range(count))
    # Polygraphy's base64 is 4/3 of the bytes, decoded once more: under 8 samples at a time, of 40.
    assert peak < 8 * nbytes


def test_the_digest_sees_names_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    made = parsed(tmp_path, "(float[A, B] x, float[C, D] k) => (float[A, B] y) { y = Identity(x) }")
    zeros = np.zeros((2, 3), np.float32)
    one = zeros.copy()
    one[0, 0] = -0.0  # equal to zero, and other bytes
    versions = [(zeros, zeros), (zeros.T, zeros), (zeros, zeros.T), (one, zeros), (zeros, one)]
    digests = set()
    for index, (x, k) in enumerate(versions):
        np.savez(tmp_path / f"{index}.npz", x=x, k=k)
        digests.add(load(made, tmp_path, data=tmp_path / f"{index}.npz").sha256)
    assert len(digests) == len(versions)


def test_errors_are_plain_text(model: Model, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps({"x": 1, "k": 2}), encoding="utf-8")
    with pytest.raises(ParityError) as caught:
        load(model, tmp_path, data=tmp_path / "in.json")
    assert str(caught.value).count("\n") == 2  # problem, where, fix


def test_dimensions_that_say_nothing_are_no_symbols(tmp_path: Path) -> None:
    # Paddle2ONNX declares [-1, 3, "?", "?"]: the height need not be the width.
    made = parsed(tmp_path, "(float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }")
    proto = onnx.load(made.path)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[2].dim_param, dims[3].dim_param = -1, "?", "?"
    onnx.save(proto, made.path)
    made = load_model(made.path)
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 48, 192), np.float32))
    assert len(load(made, tmp_path, data=tmp_path / "a.npz")) == 1
    assert load_inputs(made, None, spool=tmp_path).sample(0).arrays["x"].shape == (1, 3, 224, 224)
