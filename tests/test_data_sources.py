"""Kinds of data that programs of data sets write: read in place, one sample at a time, and never unpacked or run."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import tarfile
import tracemalloc
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from command_line import exit_status, read_study
from parityscope.case import inputs as inputs_module
from parityscope.case import load_inputs, load_model
from parityscope.case.formats import npz
from parityscope.case.sources import data_sources
from parityscope.errors import ParityError
from parityscope.plain_numbers import plain_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from parityscope.case import Inputs, Model

COUNT = 5
SAMPLES: list[dict[str, np.ndarray]] = [
    {"x": np.arange(12, dtype=np.float32).reshape(1, 3, 4) + 100 * index, "k": np.array([[index, 7]], np.int64)}
    for index in range(COUNT)
]
TEXT = "(float[N, 3, 4] x, int64[N, 2] k) => (float[N, 3, 4] y, int64[N, 2] z) { y = Relu(x) z = Neg(k) }"
ONE_IMAGE = "(float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) { y = Relu(x) }"


def parsed(folder: Path, text: str) -> Model:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), folder / "m.onnx")
    return load_model(folder / "m.onnx")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return parsed(tmp_path, TEXT)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def load(model: Model, folder: Path, **how: Any) -> Inputs:
    return load_inputs(model, how.pop("data"), spool=folder / "spool", **how)


def rows(first: int = 0, last: int = COUNT) -> pa.Table:
    """Flat and nested lists, a class and a name."""
    return pa.table(
        {
            "x": pa.array([sample["x"].ravel().tolist() for sample in SAMPLES[first:last]], pa.list_(pa.float32())),
            "k": pa.array([sample["k"][0].tolist() for sample in SAMPLES[first:last]], pa.list_(pa.int64())),
            "class": pa.array(range(first, last), pa.int64()),
            "name": [f"s{index}" for index in range(first, last)],
            "gone": pa.array([None] * (last - first), pa.null()),
        }
    )


def parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(rows(0, 3), folder / "0.parquet", row_group_size=2)
    pq.write_table(rows(3), folder / "1.parquet")
    return {"data": folder}


def parquet_of_tensors(folder: Path) -> dict[str, Any]:
    kind = pa.fixed_shape_tensor(pa.float32(), (3, 4))
    storage = pa.array([sample["x"].ravel().tolist() for sample in SAMPLES], pa.list_(pa.float32(), 12))
    nested = pa.array([sample["k"].tolist() for sample in SAMPLES], pa.list_(pa.list_(pa.int64(), 2)))
    table = rows().select(["class", "name"])
    table = table.append_column("x", pa.ExtensionArray.from_storage(kind, storage)).append_column("k", nested)
    pq.write_table(table, folder / "all.parquet")
    return {"data": folder / "all.parquet"}


def arrow_file(folder: Path) -> dict[str, Any]:
    with pa.ipc.new_file(str(folder / "all.arrow"), rows().schema) as file:
        file.write_table(rows(), max_chunksize=2)
    return {"data": str(folder / "all.arrow")}


def saved_data_set(folder: Path) -> dict[str, Any]:
    import datasets

    made = datasets.Dataset(rows().drop_columns(["gone"]))
    datasets.disable_progress_bars()
    made.save_to_disk(folder / "saved", num_shards=2)
    return {"data": folder / "saved"}


def lines(folder: Path) -> dict[str, Any]:
    with (folder / "all.jsonl").open("w", encoding="utf-8") as file:
        for index, sample in enumerate(SAMPLES):
            values = {"x": sample["x"][0].tolist(), "k": sample["k"].tolist(), "class": index, "name": f"s{index}"}
            file.write(json.dumps(values) + "\n\n")
    return {"data": folder / "all.jsonl"}


def shards_of_rows(folder: Path) -> dict[str, Any]:
    for number, part in enumerate((SAMPLES[:2], SAMPLES[2:])):
        np.savez(folder / f"{number}.npz", **{name: np.concatenate([one[name] for one in part]) for name in ("x", "k")})
    return {"data": folder, "stacked": True}


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def shards(folder: Path) -> dict[str, Any]:
    for number, part in enumerate((range(3), range(3, COUNT))):
        with tarfile.open(folder / f"{number}.tar", "w") as archive:
            for index in part:
                key = f"in/{index:05d}"
                for name, array in SAMPLES[index].items():
                    add(archive, f"{key}.{name}.npy", as_npy(array))
                add(archive, f"{key}.cls", str(index).encode())
                add(archive, f"{key}.json", json.dumps({"name": f"s{index}"}).encode())
    return {"data": folder}


KINDS = [parquet, parquet_of_tensors, arrow_file, saved_data_set, lines, shards_of_rows, shards]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_samples_in_any_order(
    model: Model, tmp_path: Path, data: Path, kind: Callable[[Path], dict[str, Any]]
) -> None:
    inputs = load(model, tmp_path, **kind(data))
    (tmp_path / "plain").mkdir()
    for index, sample in enumerate(SAMPLES):
        np.savez(tmp_path / "plain" / f"{index}.npz", **sample)
    assert inputs.sha256 == load(model, tmp_path, data=tmp_path / "plain").sha256
    assert inputs.count == len(inputs) == COUNT
    for index in (4, 0, 3, 3, 1, 2):
        for name, expected in SAMPLES[index].items():
            found = inputs.sample(index).arrays[name]
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        if kind is not shards_of_rows:
            truths = inputs.truths(index)
            assert (int(truths["class"]), str(truths["name"]), sorted(truths)) == (
                index,
                f"s{index}",
                ["class", "name"],
            )
    assert len({sample.name for sample in inputs}) == COUNT


def test_a_preprocessing_gets_a_row_as_a_dict_and_may_say_what_is_right(
    model: Model, tmp_path: Path, data: Path
) -> None:
    (data / "prepare.py").write_text(
        "import numpy as np\ndef prepare(row):\n"
        "  k = np.array([[int(row['class']), 7]])\n"
        "  return {'x': row['x'].reshape(1, 3, 4), 'k': k}, {'twice': 2 * row['class']}\n",
        encoding="utf-8",
    )
    pq.write_table(rows().drop_columns(["k"]), data / "all.parquet")
    inputs = load(model, tmp_path, data=data / "all.parquet", preprocess=f"{data}/prepare.py:prepare")
    assert [int(sample.arrays["k"][0, 0]) for sample in inputs] == list(range(COUNT))
    assert [int(inputs.truths(index)["twice"]) for index in inputs.indices] == [0, 2, 4, 6, 8]


def test_rows_that_do_not_fit_are_told_with_what_would(model: Model, tmp_path: Path, data: Path) -> None:
    pq.write_table(rows().rename_columns(["a", "b", "class", "name", "gone"]), data / "other.parquet")
    with pytest.raises(
        ParityError, match=r"no field of row 0 of other.parquet has the name of an input \(x, k\)"
    ) as caught:
        load(model, tmp_path, data=data / "other.parquet")
    assert "--preprocess" in caught.value.fix
    wrong = rows().set_column(0, "x", pa.array([[1.0, 2.0]] * COUNT, pa.list_(pa.float32())))
    pq.write_table(wrong, data / "wrong.parquet")
    with pytest.raises(ParityError, match=r"expected float32 \[N, 3, 4\], found"):
        load(model, tmp_path, data=data / "wrong.parquet")
    wide = rows().set_column(0, "x", pa.array([[1.0] * 12] * COUNT, pa.list_(pa.float64())))
    pq.write_table(wide, data / "wide.parquet")
    with pytest.raises(ParityError, match="found float64"):  # nothing is converted
        load(model, tmp_path, data=data / "wide.parquet")


# ---- images, sounds, texts


def save_image(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (level, 0, 0)).save(path)


RECIPE = 'size = [4, 4]\nkernel = "nearest"\nscale = 1\n'


def test_folders_of_images_are_classes(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, ONE_IMAGE)
    (tmp_path / "prepare.toml").write_text(RECIPE, encoding="utf-8")
    for level, name in enumerate(("cat/1.png", "cat/2.png", "7/1.png")):
        save_image(data / name, level)
    inputs = load(made, tmp_path, data=data, preprocess=str(tmp_path / "prepare.toml"))
    assert [(sample.name, int(sample.truths["class"])) for sample in inputs] == [
        ("7/1.png", 0),
        ("cat/1.png", 1),
        ("cat/2.png", 1),
    ]
    assert [int(sample.arrays["x"].max()) for sample in inputs] == [2, 0, 1]
    assert inputs.sample(2).original == data / "cat/2.png"


def test_an_input_may_be_called_images(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, "(float[1, 3, 64, 128] images) => (float[1, 3, 64, 128] y) { y = Relu(images) }")
    content = base64.b64encode(as_npy(np.ones((1, 3, 64, 128), np.float32))).decode()
    told = [{"images": {"array": content, "polygraphy_class": "ndarray"}}]
    (data / "inputs.json").write_text(json.dumps(told), encoding="utf-8")
    (sample,) = load(made, tmp_path, data=data / "inputs.json")
    assert sample.arrays["images"].sum() == 3 * 64 * 128


def test_images_of_cocos_annotations_bring_their_boxes(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, ONE_IMAGE)
    (tmp_path / "prepare.toml").write_text(RECIPE, encoding="utf-8")
    save_image(data / "val2017" / "a.png", 1)
    save_image(data / "val2017" / "b.png", 2)
    (data / "annotations").mkdir()
    document = {
        "info": {},
        "images": [{"id": 9, "file_name": "b.png"}, {"id": 5, "file_name": "a.png"}],
        "annotations": [
            {"id": 1, "image_id": 5, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 1},
            {"id": 2, "image_id": 5, "category_id": 3, "bbox": [0.5, 0, 1, 1]},
        ],
    }
    path = data / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    inputs = load(made, tmp_path, data=path, preprocess=str(tmp_path / "prepare.toml"))
    assert [sample.name for sample in inputs] == ["b.png", "a.png"]
    assert inputs.truths(0)["boxes"].shape == (0, 4)
    found = inputs.truths(1)
    assert found["boxes"].tolist() == [[1, 2, 4, 6], [0.5, 0, 1.5, 1]]
    assert (found["classes"].tolist(), found["crowd"].tolist(), found["size"].tolist()) == (
        [18, 3],
        [True, False],
        [6, 8],
    )
    document["images"][0]["file_name"] = "../../b.png"  # type: ignore[index]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ParityError, match="leads out of the folder"):
        load(made, tmp_path, data=path, preprocess=str(tmp_path / "prepare.toml"))
    document["annotations"][0]["category_id"] = 1 << 64  # type: ignore[index]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ParityError, match="no COCO file of objects"):
        load(made, tmp_path, data=path, preprocess=str(tmp_path / "prepare.toml"))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sounds_are_numbers_from_minus_one_to_one(tmp_path: Path, data: Path, width: int) -> None:
    made = parsed(tmp_path, "(float[1, T] x) => (float[1, T] y) { y = Relu(x) }")
    (tmp_path / "prepare.py").write_text(
        "def prepare(sound, rate):\n  assert rate == 8000 and sound.shape == (3, 2)\n  return sound[:, 1][None]\n",
        encoding="utf-8",
    )
    top = 1 << (8 * width - 1)
    values = np.array([[0, -top], [0, 0], [0, top // 2]])
    raw = (values + 128).astype(np.uint8) if width == 1 else values.astype("<i4")
    content = (
        raw.tobytes()
        if width in {1, 4}
        else b"".join(int(v).to_bytes(width, "little", signed=True) for v in raw.ravel())
    )
    with wave.open(str(data / "a.wav"), "wb") as file:
        file.setparams((2, width, 8000, 3, "NONE", ""))
        file.writeframes(content)
    inputs = load(made, tmp_path, data=data, preprocess=f"{tmp_path}/prepare.py:prepare")
    np.testing.assert_array_equal(inputs.sample(0).arrays["x"], [[-1, 0, 0.5]])
    (data / "a.wav").write_bytes((data / "a.wav").read_bytes()[:-2])
    with pytest.raises(ParityError, match="cannot be read"):
        load(made, tmp_path, data=data, preprocess=f"{tmp_path}/prepare.py:prepare")


def save_tokenizer(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, "so": 2, "it": 3, "goes": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a word
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"pad_token": {"content": "[PAD]"}}', encoding="utf-8")
    return folder


def test_texts_go_through_a_tokenizer_that_is_data(tmp_path: Path, data: Path) -> None:
    tokenizer = save_tokenizer(tmp_path / "tokenizer")
    fixed = (
        "(int64[1, 4] input_ids, int64[1, 4] attention_mask) => (int64[1, 4] y) { y = Add(input_ids, attention_mask) }"
    )
    (data / "a.txt").write_text("so it goes\n\nand so it goes on and on\n", encoding="utf-8")
    inputs = load(parsed(tmp_path, fixed), tmp_path, data=data / "a.txt", preprocess=str(tokenizer))
    assert inputs.sample(0).arrays["input_ids"].tolist() == [[2, 3, 4, 0]]
    assert inputs.sample(0).arrays["attention_mask"].tolist() == [[1, 1, 1, 0]]
    assert inputs.sample(1).arrays["input_ids"].tolist() == [[1, 2, 3, 4]]
    opened = "(int64[1, T] input_ids) => (int64[1, T] y) { y = Neg(input_ids) }"
    inputs = load(parsed(tmp_path, opened), tmp_path, data=data, preprocess=str(tokenizer))  # a file a sample
    assert inputs.sample(0).arrays["input_ids"].shape == (1, 10)
    (data / "a.jsonl").write_text('{"t": "so"}\n{"t": "cut \\ud83d"}\n{"t": "goes"}\n', encoding="utf-8")
    found = load(parsed(tmp_path, opened), tmp_path, data=data / "a.jsonl", preprocess=str(tokenizer))
    assert found.indices == (0, 2)
    (data / "a.jsonl").unlink()
    (tokenizer / "tokenizer_config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ParityError, match="says no padding token"):
        load(parsed(tmp_path, fixed), tmp_path, data=data, preprocess=str(tokenizer))
    strange = "(int64[1, T] tokens) => (int64[1, T] y) { y = Neg(tokens) }"
    with pytest.raises(ParityError, match="the model takes 'tokens'"):
        load(parsed(tmp_path, strange), tmp_path, data=data, preprocess=str(tokenizer))


def test_a_line_longer_than_any_text_costs_itself_alone(tmp_path: Path, data: Path) -> None:
    tokenizer = save_tokenizer(tmp_path / "tokenizer")
    lines = [b"so it goes", b"so " * (6 << 20), b"and so on"]
    (data / "a.txt").write_bytes(b"\n".join(lines))
    model = parsed(tmp_path, "(int64[1, T] input_ids) => (int64[1, T] y) { y = Neg(input_ids) }")
    inputs = load(model, tmp_path, data=data / "a.txt", preprocess=str(tokenizer))
    assert (inputs.indices, inputs.count) == ((0, 2), 3)
    assert inputs.not_judged[0].reason == "text 1 of a.txt is longer than 16 MiB"


def test_an_image_processor_is_read_as_data(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, ONE_IMAGE)
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (9, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(data / "a.png")
    folder = tmp_path / "processor"
    folder.mkdir()
    told = {
        "do_resize": True,
        "size": {"shortest_edge": 6},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": 4, "width": 4},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.3, 0.4],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(told), encoding="utf-8")
    found = load(made, tmp_path, data=data, preprocess=str(folder)).sample(0).arrays["x"][0]
    # As Hugging Face's processors do it: resized by Pillow in bytes, the middle cut out, then float arithmetic.
    resized = np.asarray(Image.fromarray(pixels).resize((8, 6), Image.Resampling.BICUBIC))[1:5, 2:6]
    expected = (resized / 255 - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.3, 0.4])
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-6)
    (folder / "preprocessor_config.json").write_text(json.dumps({**told, "do_pad": True}), encoding="utf-8")
    with pytest.raises(ParityError, match="asks for 'do_pad'"):
        load(made, tmp_path, data=data, preprocess=str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps({**told, "rescale_factor": 10**400}), encoding="utf-8")
    with pytest.raises(ParityError, match="an integer has 401 digits"):
        load(made, tmp_path, data=data, preprocess=str(folder))


# ---- archives of strangers


def linked(archive: tarfile.TarFile, kind: bytes) -> None:
    member = tarfile.TarInfo("a.x.npy")
    member.type, member.linkname = kind, "/etc/passwd"
    archive.addfile(member)


def announced(archive: tarfile.TarFile) -> None:
    """A gigabyte of extended header, of which none is there."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    assert archive.fileobj is not None
    archive.fileobj.write(member.tobuf(tarfile.GNU_FORMAT))


def by_extension(archive: tarfile.TarFile) -> None:
    """A harmless name, and a pax header that gives another."""
    member = tarfile.TarInfo("a.x.npy")
    member.pax_headers = {"path": "../../out.x.npy"}
    archive.addfile(member)


def shared(archive: tarfile.TarFile) -> None:
    """What is said of all members, thousands of times over: each member gets a copy of it."""
    told = "".join(f"10 k{number:04d}=\n" for number in range(256)).encode()
    assert archive.fileobj is not None
    for _ in range(2):
        member = tarfile.TarInfo("all")
        member.type, member.size = tarfile.XGLTYPE, len(told)
        archive.fileobj.write(member.tobuf(tarfile.USTAR_FORMAT) + told)


def doubled(archive: tarfile.TarFile) -> None:
    for _ in range(2):
        add(archive, "a.x.npy", b"1")


HOSTILE: Mapping[str, tuple[Callable[[tarfile.TarFile], None], str]] = {
    "symbolic": (lambda archive: linked(archive, tarfile.SYMTYPE), "which is a link"),
    "hard": (lambda archive: linked(archive, tarfile.LNKTYPE), "which is a link"),
    "device": (lambda archive: linked(archive, tarfile.CHRTYPE), "which is no plain file"),
    "pipe": (lambda archive: linked(archive, tarfile.FIFOTYPE), "which is no plain file"),
    "sparse": (lambda archive: linked(archive, tarfile.GNUTYPE_SPARSE), "which is no plain file"),
    "absolute": (lambda archive: add(archive, "/etc/a.x.npy", b"1"), "leads out of it"),
    "parents": (lambda archive: add(archive, "in/../../a.x.npy", b"1"), "leads out of it"),
    "extension": (by_extension, "leads out of it"),
    "doubled": (doubled, "a.tar holds 'a.x.npy' twice"),
    "header": (announced, "an extended header of 1073741824 bytes"),
    "shared": (shared, "an extended header of 5120 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(model: Model, tmp_path: Path, data: Path, name: str) -> None:
    make, problem = HOSTILE[name]
    with tarfile.open(data / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        make(archive)
    with pytest.raises(ParityError, match=re.escape(problem)):
        load(model, tmp_path, data=data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "m.onnx"]


def test_what_an_archive_announces_is_held_against_the_memory(
    model: Model, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(data / "a.tar", "w") as archive:
        add(archive, "a.x.npy", bytes(2 << 20))
    with pytest.raises(ParityError, match="holds a file of 2 MiB, more than --memory holds"):
        load(model, tmp_path, data=data, memory=1 << 20)
    monkeypatch.setattr(npz, "ALWAYS_NBYTES", 1 << 20)
    bomb = io.BytesIO()
    np.savez_compressed(bomb, x=np.zeros(2 << 20, np.uint8))
    with tarfile.open(data / "a.tar", "w") as archive:
        add(archive, "a.npz", bomb.getvalue())
    with pytest.raises(ParityError, match="which no samples do"):
        load(model, tmp_path, data=data)


def test_a_saved_data_set_that_names_files_elsewhere_is_refused(model: Model, tmp_path: Path, data: Path) -> None:
    (data / "state.json").write_text('{"_data_files": [{"filename": "../m.arrow"}]}', encoding="utf-8")
    with pytest.raises(ParityError, match="names files outside its folder"):
        load(model, tmp_path, data=data)
    (data / "state.json").unlink()
    (data / "dataset_dict.json").write_text('{"splits": ["test"]}', encoding="utf-8")
    (data / "test").mkdir()
    (data / "test" / "state.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ParityError, match="several splits: test") as caught:
        load(model, tmp_path, data=data)
    assert caught.value.fix.endswith("data/test")


# ---- memory and disk


@pytest.mark.parametrize("kind", [parquet, arrow_file, shards_of_rows, shards])
def test_memory_stays_at_a_few_samples(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], dict[str, Any]]
) -> None:
    width = 1 << 16
    made = parsed(tmp_path, f"(float[1, {width}] x, int64[1, 2] k) => (float[1, {width}] y) {{ y = Relu(x) }}")
    samples = [{"x": np.full((1, width), index, np.float32), "k": np.zeros((1, 2), np.int64)} for index in range(40)]
    monkeypatch.setattr("test_data_sources.SAMPLES", samples)
    monkeypatch.setattr("test_data_sources.COUNT", len(samples))
    monkeypatch.setattr(inputs_module, "MOST_SPOOLED", 0)
    monkeypatch.setattr("test_data_sources.rows", lambda first=0, last=40: long_rows(samples[first:last]))
    how = kind(data)
    load(made, tmp_path, **how)  # modules that it takes are no samples
    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        inputs = load(made, tmp_path, **how)
        seen, largest = [], 0
        for sample in inputs:
            seen.append(float(sample.arrays["x"][0, -1]))
            largest = max(largest, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == list(range(40))
    assert peak < 3 << 20
    assert largest < 12 << 20  # of 10 MiB that are read twice
    assert not list((tmp_path / "spool").glob("*"))


def long_rows(samples: list[dict[str, np.ndarray]]) -> pa.Table:
    flat = pa.array(np.concatenate([sample["x"].ravel() for sample in samples]))
    column = pa.FixedSizeListArray.from_arrays(flat, samples[0]["x"].size)
    return pa.table({"x": column, "k": pa.array([[0, 0]] * len(samples), pa.list_(pa.int64()))})


def test_what_is_prepared_anew_must_be_the_same(
    model: Model, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "prepare.py").write_text(
        "import numpy as np\ncalls = []\ndef prepare(row):\n  calls.append(1)\n"
        "  return {'x': np.full((1, 3, 4), len(calls), np.float32), 'k': np.zeros((1, 2), np.int64)}\n",
        encoding="utf-8",
    )
    pq.write_table(rows(), data / "all.parquet")
    how = {"data": data / "all.parquet", "preprocess": f"{data}/prepare.py:prepare"}
    assert [sample.arrays["x"][0, 0, 0] for sample in load(model, tmp_path, **how)] == [1, 2, 3, 4, 5]
    monkeypatch.setattr(inputs_module, "MOST_SPOOLED", 2 * 64)  # of 64 bytes each
    inputs = load(model, tmp_path, **how)
    assert inputs.sample(1).arrays["x"][0, 0, 0] == 2
    with pytest.raises(ParityError, match="sample 2 is another than when it was checked") as caught:
        inputs.sample(2)
    assert "a seed" in caught.value.fix


def test_every_source_says_what_it_is() -> None:
    found = data_sources()
    assert len(found) >= 11
    suffixes = [suffix for source in found.values() for suffix in source.suffixes]
    assert len(set(suffixes)) == len(suffixes)


# ---- what is damaged


def many(folder: Path, damaged: int = 17, count: int = 100) -> Path:
    """Samples for a model that takes x: float [1, 4]."""
    (folder / "many").mkdir()
    for index in range(count):
        x = np.random.default_rng(index).random((1, 4), dtype=np.float32)
        np.savez(folder / "many" / f"{index:03d}.npz", x=x)
    (folder / "many" / f"{damaged:03d}.npz").write_bytes(b"PK cut")
    return folder / "many"


def test_a_damaged_sample_is_left_out_listed_and_counted(tmp_path: Path) -> None:
    made = parsed(tmp_path, "(float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }")
    data = many(tmp_path)
    inputs = load(made, tmp_path, data=data)
    assert (inputs.count, len(inputs), 17 in inputs.indices) == (100, 99, False)
    (skip,) = inputs.not_judged
    assert (skip.what, skip.asked) == ("sample 17 (017.npz)", True)
    assert "cannot be read" in skip.reason
    for share, asked in ((0.009, True), (0.01, False)):
        assert [one.asked for one in load(made, tmp_path, data=data, allow_skipped=share).not_judged] == [asked]
    for index in range(18, 50):
        (data / f"{index:03d}.npz").write_bytes(b"")
    told = load(made, tmp_path, data=data).not_judged
    assert len(told) == 21
    assert told[-1].what == "13 more samples"
    for path in data.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ParityError, match=r"no sample can be read: 000\.npz cannot be read"):
        load(made, tmp_path, data=data)


@pytest.mark.parametrize(("allowed", "expected"), [("0", 3), ("0.5%", 3), ("1%", 0), ("0.01", 0)])
def test_more_than_the_allowed_share_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], allowed: str, expected: int
) -> None:
    parsed(tmp_path, "(float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }")
    words = ["compare", str(tmp_path / "m.onnx"), "--candidate", "ort", "--inputs", str(many(tmp_path)), "--quiet"]
    assert exit_status(*words, "--allow-skipped", allowed, "--study", str(tmp_path / "study"), "--all") == expected
    assert "sample 17 (017.npz)" in capsys.readouterr().out
    document = read_study(tmp_path / "study")
    assert (document["inputs"]["samples"], document["verdict"]) == (99, "within")


def test_a_share_is_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("compare", "m.onnx", "--candidate", "ort", "--allow-skipped", "2") == 2
    assert "--allow-skipped 1%" in capsys.readouterr().err


def test_a_damaged_shard_is_lost_and_told(model: Model, tmp_path: Path, data: Path) -> None:
    shards(data)
    whole = (data / "1.tar").read_bytes()
    (data / "1.tar").write_bytes(b"no archive" * 100)
    inputs = load(model, tmp_path, data=data, allow_skipped=0.4)
    (lost,) = inputs.not_judged
    assert (len(inputs), lost.what, lost.asked) == (3, "shard 1.tar", True)
    assert not load(model, tmp_path, data=data, allow_skipped=0.5).not_judged[0].asked
    # Cut in the middle of its second sample: the first is there, and so is what was whole of the second.
    (data / "1.tar").write_bytes(whole[: 9 * tarfile.BLOCKSIZE])
    inputs = load(model, tmp_path, data=data)
    assert len(inputs) == 4
    assert [skip.what for skip in inputs.not_judged] == ["shard 1.tar"]
    assert "cut short" in inputs.not_judged[0].reason
    (data / "0.tar").unlink()
    (data / "1.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(ParityError, match=r"1\.tar cannot be read"):
        load(model, tmp_path, data=data)


def test_a_shard_that_is_cut_in_a_header_or_lies_of_a_size_is_told(model: Model, tmp_path: Path, data: Path) -> None:
    place = 0
    with tarfile.open(data / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for index in range(2):
            content = io.BytesIO()
            np.savez(content, **SAMPLES[index])  # type: ignore[arg-type]
            add(archive, f"{index}.npz", content.getvalue())
            place = archive.offset if index == 0 else place
        member = tarfile.TarInfo("2.npz")
        member.pax_headers = {"size": "-1536"}
        archive.addfile(member)
        add(archive, "3.npz", content.getvalue())
    inputs = load(model, tmp_path, data=data)
    assert (len(inputs), inputs.not_judged[0].reason) == (2, "2.npz is cut short")
    (data / "a.tar").write_bytes((data / "a.tar").read_bytes()[: place + 100])
    inputs = load(model, tmp_path, data=data)
    assert (len(inputs), inputs.not_judged[0].reason) == (1, f"at byte {place}: truncated header")


def test_a_damaged_member_costs_its_sample_alone(model: Model, tmp_path: Path, data: Path) -> None:
    with tarfile.open(data / "a.tar", "w") as archive:
        for index in range(3):
            for name, array in SAMPLES[index].items():
                content = as_npy(array)
                add(archive, f"{index}.{name}.npy", content[: -4 if index == 1 else None])
    inputs = load(model, tmp_path, data=data)
    assert inputs.indices == (0, 2)
    assert [sample.arrays["k"][0, 0] for sample in inputs] == [0, 2]
    assert inputs.not_judged[0].what == "sample 1 (1 of a.tar)"


def test_a_gap_in_a_row_costs_the_row_alone(model: Model, tmp_path: Path, data: Path) -> None:
    table = rows()
    values = table.column("x").to_pylist()
    values[2] = None
    values[3][0] = None
    pq.write_table(table.set_column(0, "x", pa.array(values, pa.list_(pa.float32()))), data / "a.parquet")
    assert load(model, tmp_path, data=data).indices == (0, 1, 4)


def test_a_text_that_is_no_text_costs_its_row_alone(model: Model, tmp_path: Path, data: Path) -> None:
    texts = pa.StringArray.from_buffers(5, pa.py_buffer(np.arange(6, dtype=np.int32)), pa.py_buffer(b"ab\xffde"))
    pq.write_table(rows().append_column("text", texts), data / "a.parquet")
    assert load(model, tmp_path, data=data).indices == (0, 1, 3, 4)


def test_an_arrow_file_whose_offsets_lead_elsewhere_is_refused(model: Model, tmp_path: Path, data: Path) -> None:
    table = rows().append_column("text", pa.array(["ab", "cd", "efg", "h", "i"]))
    with pa.OSFile(str(data / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    content, known = (data / "a.arrow").read_bytes(), np.array([0, 2, 4, 7, 8, 9], np.int32).tobytes()
    assert content.count(known) == 1
    for lying in ([0, 2, 4, 7, 8, 2_000_000_000], [0, 2_000_000_000, 4, 7, 8, 9]):
        (data / "a.arrow").write_bytes(content.replace(known, np.array(lying, np.int32).tobytes()))
        with pytest.raises(ParityError, match=r"a\.arrow cannot be read|sample"):
            load(model, tmp_path, data=data)


def test_lists_of_several_lengths_are_no_truth_and_no_input(tmp_path: Path, data: Path) -> None:
    made = parsed(tmp_path, "(float[1, 2] x) => (float[1, 2] y) { y = Relu(x) }")
    (data / "a.jsonl").write_text('{"x": [1.0, 2.0], "words": [[1], [2, 3]], "n": 1}\n', encoding="utf-8")
    assert load(made, tmp_path, data=data / "a.jsonl").truths(0).keys() == {"n"}
    (data / "a.jsonl").write_text('{"x": [[1.0], [2.0, 3.0]]}\n', encoding="utf-8")
    with pytest.raises(ParityError, match="an array of Python objects"):
        load(made, tmp_path, data=data / "a.jsonl")


def test_a_metric_that_fails_is_one_error_with_a_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parsed(tmp_path, "(float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }")
    columns = {"x": pa.array([[1.0] * 4, [2.0] * 4], pa.list_(pa.float32())), "class": ["none", "of these"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    words = ["verify", str(tmp_path / "m.onnx"), "--before", "ort", "--after", "ort", "--no-timing", "--quiet"]
    words += ["--inputs", str(tmp_path / "a.parquet"), "--study", str(tmp_path / "study")]
    assert exit_status(*words, "--metric", "top1") == 2
    said = capsys.readouterr().err
    assert "the labels" in said or "the metric failed" in said
    assert "fix:" in said
    assert "Traceback" not in said


def test_samples_can_be_sent_to_another_process(model: Model, tmp_path: Path, data: Path) -> None:
    for kind, told in ((shards_of_rows, []), (parquet, ["class", "name"])):
        (data / kind.__name__).mkdir()
        found = pickle.loads(pickle.dumps(load(model, tmp_path, **kind(data / kind.__name__)).sample(1)))  # noqa: S301
        np.testing.assert_array_equal(found.arrays["x"], SAMPLES[1]["x"])
        assert sorted(found.truths) == told


def test_a_share_in_percent_is_the_share_of_so_many_samples() -> None:
    assert all(plain_share(f"{number / 10:g}%") == number / 1000 for number in range(1001))
