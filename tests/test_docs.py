"""The pages are true: every command and every Python block of README.md and docs/*.md is run.

Markers in the Markdown, just before a block and invisible to the reader:

* `<!-- file: NAME -->`             the block is the file NAME, which all pages may use;
* `<!-- not run: REASON -->`        the block is not run;
* `<!-- not run (WORD): REASON -->` commands of the block that begin with WORD are not run;
* `<!-- output -->`                 the `text` block is what the block before it prints on stdout, exactly.

`console` blocks hold commands behind "$ "; `python` blocks are run as scripts; other languages are not run. `make` is left to
CI. docs/recorder.md's Python and C++ are run by test_recorder.py, here are only its commands. The Chinese README shows
the same code as the English one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.formats.polygraphy import write_inputs, write_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
PAGES = (ENGLISH, *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>(?:file|not run|output)\b.*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = {"console", "python", "bash", "sh", "shell"}
OUTCOMES = {0: "within policy, or done", 1: "beyond policy", 3: "something was not judged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block and the marker before it."""

    page: str
    language: str
    code: str
    marker: str

    @property
    def file(self) -> str:
        return self.marker.removeprefix("file: ") if self.marker.startswith("file: ") else ""

    def commands(self) -> list[str]:
        """The commands that are to be run."""
        shown = re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.code, re.MULTILINE)
        left_out = ["make"]
        if named := re.match(r"not run \((\w+)\): ", self.marker):
            left_out.append(named[1])
        elif self.marker.startswith("not run: "):
            return []
        return [command for command in shown if command.split()[0] not in left_out]


def blocks(page: Path) -> list[Block]:
    return [
        Block(page=page.name, language=found["language"], code=found["code"], marker=found["marker"] or "")
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def small_model(kind: type[np.floating]) -> onnx.ModelProto:
    """Images of any size -> "boxes" (1, 4) and "y" (1, 4, height, width), in float32 outside and `kind` inside."""
    rng = np.random.default_rng(11)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)) / 5, "v": rng.standard_normal((4, 4)) / 2}
    body = [
        helper.make_node("Cast", ["x"], ["image"], to=helper.np_dtype_to_tensor_dtype(np.dtype(kind))),
        helper.make_node("Conv", ["image", "w"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "v"], ["corners"]),
        helper.make_node("Cast", ["corners"], ["boxes"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["active"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        body,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 4]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, "height", "width"]),
        ],
        [numpy_helper.from_array(array.astype(kind), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted, made for a model of a few nodes so that each command takes a second or two.

    model.onnx and model-fp16.onnx; two samples as samples/*.npz, as inputs.json (Polygraphy) and as photos/*.png; one
    as blobs/x.bin; what the model makes of them as outputs.json and in recording/; and infer.sh, a deployment.
    """
    from PIL import Image

    folder = tmp_path_factory.mktemp("pages")
    onnx.save(small_model(np.float32), folder / "model.onnx")
    onnx.save(small_model(np.float16), folder / "model-fp16.onnx")
    rng = np.random.default_rng(12)
    (folder / "photos").mkdir()
    images = [rng.integers(0, 256, (32, 48, 3), dtype=np.uint8) for _ in range(2)]
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / "photos" / f"photo-{number}.png")
        arrays = {"x": np.ascontiguousarray((image.astype(np.float32) / 255).transpose(2, 0, 1)[np.newaxis])}
        write_npz(folder / "samples" / f"{number:06d}.npz", arrays)
    (folder / "blobs").mkdir()
    rng.random((1, 3, 384, 768), dtype=np.float32).tofile(folder / "blobs" / "x.bin")
    model = load_model(folder / "model.onnx")
    inputs = load_inputs(model, folder / "samples", spool=folder / "spool")
    outputs = []
    with open_target(model, parse_target("ort"), Capture()) as session:
        for sample in inputs:
            outputs.append(dict(session.run(sample)))
            write_npz(folder / "recording" / "inputs" / f"{sample.index:06d}.npz", sample.arrays)
            write_npz(folder / "recording" / "outputs" / f"{sample.index:06d}.npz", outputs[-1])
    write_inputs(folder / "inputs.json", [sample.arrays for sample in inputs])
    write_outputs(folder / "outputs.json", "trt-runner", [(arrays, 0.1) for arrays in outputs])
    (folder / "infer.sh").write_text('#!/bin/sh\nexec python infer.py "$@"\n', encoding="utf-8")
    (folder / "infer.sh").chmod(0o755)
    (folder / "tests").mkdir()
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    for page in PAGES:
        for block in blocks(page):
            if block.file:
                assert not (folder / block.file).exists(), f"two blocks are {block.file}"
                (folder / block.file).write_text(block.code, encoding="utf-8")
    return folder


@pytest.fixture
def desk(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "desk", symlinks=True)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`command` in a shell that finds the programs of this environment first; the shell does no more than that."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": search},
    )
    for study in folder.glob("parityscope-*"):  # two in one second would be called alike
        shutil.rmtree(study)
    return done


def runnable(page: Path) -> Iterator[tuple[Block, list[str]]]:
    """Each block of a page that is to be run, with its commands; a Python block that is no file is a script."""
    for block in blocks(page):
        if block.language == "python":
            ours = page.name != "recorder.md" and not block.file and not block.marker.startswith("not run")
            yield block, ["python page.py"] if ours else []
        elif block.language in RUN:
            yield block, block.commands()
        elif block.marker == "output":
            yield block, []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_works(page: Path, desk: Path) -> None:
    if any("openvino" in block.code for block in blocks(page)):
        pytest.importorskip("openvino")
    printed = ""
    for block, commands in runnable(page):
        if block.marker == "output":
            assert printed.strip() == block.code.strip(), f"{page.name} shows another output"
        if block.language == "python":
            (desk / "page.py").write_text(block.code, encoding="utf-8")
        for command in commands:
            done = run(command, desk)
            printed = done.stdout
            expected = OUTCOMES if command.startswith("parityscope ") else {0: ""}
            assert done.returncode in expected, f"{page.name}: {command}\n{done.stderr}"
            assert "Traceback" not in done.stderr, f"{page.name}: {command}\n{done.stderr}"


def test_both_readmes_show_the_same_code() -> None:
    def code(page: Path) -> list[tuple[str, str, str]]:
        return [
            (
                block.language,
                block.marker,
                re.sub(r"\s*//.*", "", block.code) if block.language == "cpp" else block.code,
            )
            for block in blocks(page)
        ]

    assert code(CHINESE) == code(ENGLISH)


def test_the_pages_hold_what_this_file_looks_for() -> None:
    """The patterns above find what they are meant for, so that no page passes because nothing in it was seen."""
    seen = [(block, command) for page in PAGES for block, commands in runnable(page) for command in commands]
    assert len([command for _, command in seen if command.startswith("parityscope diagnose ")]) >= 10
    assert {"README.md", "inputs.md", "metrics.md", "targets.md", "index.md"} <= {block.page for block, _ in seen}
    assert any(block.marker == "output" for page in PAGES for block, _ in runnable(page))
    for page in (*PAGES, CHINESE):
        text = page.read_text(encoding="utf-8")
        assert len(blocks(page)) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), f"{page.name}: a fence is open"
        unread = [
            line for block in blocks(page) if block.language in RUN - {"python"} for line in block.code.split("\n")
        ]
        assert all(line.startswith(("$ ", "  ")) or not line for line in unread), f"{page.name}: a command without '$ '"


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in (*PAGES, CHINESE):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"
