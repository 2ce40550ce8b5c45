"""Twelve real cases for first screens: what is wrong or right in each is known, and each is one command in one folder.

Six are public reports (one outlier, a detector's preprocessing, an FP32 island, exchanged inputs, a lost bound, a bug of an
optimizer), four are networks that FP16 breaks by themselves, one deployment is clean, one prepares its images wrongly.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from encoder import write_encoder
from PIL import Image

from pages import blocks, run
from parityscope.case.formats.npz import write_npz
from proving.models.efficientnet import efficientnet_lite0
from proving.models.fetching import fetch, model_path
from proving.models.labelled_files import file_tokens
from proving.models.notes import melody
from proving.models.samples import sample_of
from proving.old_runtimes import interpreter
from test_bindings import PROGRAM
from test_old_runtimes import BUGS, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_PHOTOGRAPHS = ("coffee", "chelsea", "astronaut")
_CENTRAL = """size = [224, 224]
fit = "central"
kernel = "bicubic-antialias"
shorter = 256
scale = 1
mean = 127
deviation = 128
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCase:
    """`prepare` writes what the command needs into a folder; `command` is what somebody types there.

    `cause` is the code that has to be named ("" where nothing is wrong), `truth` what is wrong, where, in a reader's words.
    """

    title: str
    prepare: Callable[[Path], None]
    command: str
    cause: str
    truth: str


def _page(name: str) -> Callable[[Path], None]:
    """The files and the first script of a page of the documentation."""

    def prepare(folder: Path) -> None:
        found = blocks(DOCS / name)
        for block in found:
            if block.file:
                (folder / block.file).write_text(block.code, encoding="utf-8")
        script = next(block.code for block in found if block.language == "python" and not block.file)
        (folder / "page.py").write_text(script, encoding="utf-8")
        done = run("python page.py", folder)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")

    return prepare


def _recorded(page: str, command: str) -> Callable[[Path], None]:
    """The same, and the page's first command that begins so: it writes the recording."""

    def prepare(folder: Path) -> None:
        _page(page)(folder)
        recording = next(one for block in blocks(DOCS / page) for one in block.shown() if one.startswith(command))
        done = run(f"{sys.executable} -m {recording}", folder)
        if done.returncode:
            raise RuntimeError(f"{page}: {done.stderr}")

    return prepare


def _rtdetr(folder: Path) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    shutil.copy(ROOT / "tests" / "data" / "rtdetr-digits" / "rtdetr-digits.onnx", folder)
    _page("case-rtdetr.md")(folder)


def _sentences(folder: Path) -> None:
    shutil.copy(model_path("minilm-i8"), folder / "minilm.onnx")
    write_npz(folder / "sentences.npz", sample_of("minilm-i8"))
    (folder / "infer.py").write_text(PROGRAM.replace("MODEL", str(folder / "minilm.onnx")), encoding="utf-8")


def _old_runtime(folder: Path) -> None:
    written(BUGS["qdq-resize"], folder)
    program = next(one for one in blocks(DOCS / "case-old-runtimes.md") if one.file)
    (folder / program.file).write_text(program.code, encoding="utf-8")
    python = interpreter(ROOT / "requirements" / "old-onnxruntime.txt")
    (folder / "old-python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', encoding="utf-8")
    (folder / "old-python").chmod(0o755)


def _files(folder: Path) -> None:
    shutil.copy(model_path("magika"), folder / "magika.onnx")
    for number, path in enumerate(sorted((ROOT / "src" / "parityscope").glob("*.py"))[:3]):
        write_npz(folder / "files" / f"{number}.npz", {"bytes": file_tokens(path.read_bytes())})
    for number, path in enumerate((ROOT / "README.md", ROOT / "mkdocs.yml", ROOT / "LICENSE")):
        write_npz(folder / "files" / f"{number + 3}.npz", {"bytes": file_tokens(path.read_bytes())})


def _music(folder: Path) -> None:
    shutil.copy(model_path("pitch"), folder / "nmp.onnx")
    for seed in range(2):
        write_npz(folder / "audio" / f"{seed}.npz", dict(melody(seed)[0]))


def _text(folder: Path) -> None:
    shutil.copy(model_path("ocr-det"), folder / "text-detector.onnx")
    write_npz(folder / "page.npz", sample_of("ocr-det"))


def _transformer(folder: Path) -> None:
    write_encoder(folder, 2)


def _photographs(mean: tuple[float, ...], deviation: tuple[float, ...], scale: float) -> Callable[[Path], None]:
    """EfficientNet-Lite0, photographs, its recipe, and the answers of a deployment that normalises so."""

    def prepare(folder: Path) -> None:
        network = onnxruntime.InferenceSession(efficientnet_lite0(folder / "efficientnet-lite0.onnx"))
        (folder / "prepare.toml").write_text(_CENTRAL, encoding="utf-8")
        (folder / "photos").mkdir()
        for name in _PHOTOGRAPHS:
            image = Image.open(fetch(name)).convert("RGB")
            image.save(folder / "photos" / f"{name}.png")
            side = round(min(image.size) * 224 / 256)
            left, top = ((length - side) // 2 for length in image.size)
            middle = image.crop((left, top, left + side, top + side))
            small = np.asarray(middle.resize((224, 224), Image.Resampling.BICUBIC), np.float32) * scale
            x = (small - np.array(mean, np.float32)) / np.array(deviation, np.float32)
            (logits,) = network.run(None, {"image": np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)})
            write_npz(folder / "deployment" / f"{name}.npz", {"logits": logits})

    return prepare


CASES: Mapping[str, FirstCase] = {
    "outlier": FirstCase(
        title="A vision encoder that is 251.31 off, says the report: one element of 2.36 million",
        prepare=_page("fairness.md"),
        command="parityscope diagnose encoder.onnx --inputs encoder-x.npz --candidate encoder-y.npz",
        cause="DAT007",
        truth="not within; one element of output y, [0, 77, 2526] of 2,363,392; no layer is to blame",
    ),
    "detector-images": FirstCase(
        title="A detector whose images are letterboxed and normalised as it does not expect",
        prepare=_rtdetr,
        command="parityscope diagnose rtdetr-digits.onnx --inputs rtdetr-images --preprocess rtdetr.toml"
        " --candidate rtdetr-outputs --match logits,boxes",
        cause="PRE001",
        truth="wrong; images are letterboxed in a black corner and normalised with ImageNet's numbers, in front of the model",
    ),
    "island": FirstCase(
        title="An FP32 island that an FP16 engine does not honour",
        prepare=_recorded("case-island.md", "parityscope run"),
        command="parityscope diagnose island.onnx --inputs island-x.npz --candidate island-recording --declared f16",
        cause="CST003",
        truth="wrong; the FP32 island Pow, ReduceSum, Sqrt, Div is computed in FP16, from Pow (squares) on",
    ),
    "exchanged-inputs": FirstCase(
        title="A BERT whose inputs are bound in another order",
        prepare=_sentences,
        command='parityscope diagnose minilm.onnx --inputs sentences.npz --candidate "command?run=python infer.py"',
        cause="BND001",
        truth="wrong; attention_mask and token_type_ids are exchanged, in the program in front of the model",
    ),
    "lost-bound": FirstCase(
        title="A convolution and a Clip whose upper bound is lost",
        prepare=_recorded("case-conv-clip.md", "parityscope run"),
        command="parityscope diagnose clip.onnx --inputs clip-x.npz --candidate clip-recording",
        cause="FUS014",
        truth="wrong; the Clip behind the convolution lost its upper bound 0.5, at output y; TF32 is not it",
    ),
    "old-optimizer": FirstCase(
        title="A bug of ONNX Runtime 1.22.1's optimizer",
        prepare=_old_runtime,
        command='parityscope diagnose model.onnx --inputs x.npz --candidate "command?run=./old-python old_runtime.py"',
        cause="FUS011",
        truth="wrong; the optimizer of the deployment's runtime rewrites Resize#4 to something else (tensor u)",
    ),
    "file-types": FirstCase(
        title="magika, which tells file types, in FP16",
        prepare=_files,
        command="parityscope diagnose magika.onnx --inputs files --candidate fp16",
        cause="RNG002",
        truth="unusable; a number beyond FP16's range (65504) in the second LayerNorm or the GELU in front of it",
    ),
    "music": FirstCase(
        title="Basic Pitch, which hears notes, in FP16",
        prepare=_music,
        command="parityscope diagnose nmp.onnx --inputs audio --candidate fp16",
        cause="RNG003",
        truth="unusable, all NaN; the epsilon 1e-10 in normalized_log/add becomes 0 in FP16, and Log gives -inf",
    ),
    "text-boxes": FirstCase(
        title="PaddleOCR's text detector in FP16",
        prepare=_text,
        command="parityscope diagnose text-detector.onnx --inputs page.npz --candidate fp16",
        cause="RNG001",
        truth="unusable; weights of BatchNormalization.1 (variance 97,903,600) are beyond FP16's range",
    ),
    "transformer": FirstCase(
        title="A transformer encoder with decomposed normalizations in FP16",
        prepare=_transformer,
        command="parityscope diagnose encoder.onnx --inputs samples --candidate fp16",
        cause="RNG002",
        truth="unusable; the square (Pow) of a decomposed LayerNormalization overflows FP16",
    ),
    "clean": FirstCase(
        title="EfficientNet-Lite0 in OpenVINO, as it should be",
        prepare=_photographs(mean=(127,), deviation=(128,), scale=1),
        command="parityscope compare efficientnet-lite0.onnx --inputs photos --preprocess prepare.toml --candidate openvino",
        cause="",
        truth="usable; nothing is wrong, and nothing has to be done",
    ),
    "photographs": FirstCase(
        title="EfficientNet-Lite0 whose photographs are normalised with ImageNet's numbers",
        prepare=_photographs(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225), scale=1 / 255),
        command="parityscope diagnose efficientnet-lite0.onnx --inputs photos --preprocess prepare.toml --candidate deployment",
        cause="PRE001",
        truth="wrong; the deployment normalises with ImageNet's mean and deviation, in front of the model",
    ),
}
