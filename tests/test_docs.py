"""The pages are true: every command and every Python block of README.md and docs/*.md is run.

`pages.py` says how a page marks what is a file, an output, or not run. `console` blocks hold commands behind "$ "; `parityscope`
is run in the test's own process, with what a shell would make of its words, and everything else by a shell. `python` blocks are
run as scripts; other languages are not run. `make` is left to CI. docs/recorder.md's Python and C++ are run by
test_recorder.py, here are only its commands; what test_fairness.py and test_founding_preprocessing.py work through and look at
more closely is not run here again. The Chinese README shows the same code as the English one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command_line import exit_status
from pages import CHINESE, ENGLISH, OUTCOMES, PAGES, ROOT, RUN, Block, blocks, own_words, run, sweep_studies
from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case import load_inputs, load_model
from parityscope.case.formats.npz import write_npz
from parityscope.case.formats.polygraphy import write_inputs, write_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator


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
def test_every_command_of_a_page_works(
    page: Path, desk: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if any("openvino" in block.code for block in blocks(page)):
        pytest.importorskip("openvino")
    printed = ""
    for block, commands in runnable(page):
        if block.marker == "output":
            assert printed.strip() == block.code.strip(), f"{page.name} shows another output"
        if block.language == "python":
            (desk / "page.py").write_text(block.code, encoding="utf-8")
        for command in commands:
            if words := own_words(command):
                with contextlib.chdir(desk):
                    code = exit_status(*words)
                printed, told = capfd.readouterr()
                sweep_studies(desk)
            else:
                done = run(command, desk)
                code, printed, told = done.returncode, done.stdout, done.stderr
            expected = OUTCOMES if command.startswith("parityscope ") else {0: ""}
            assert code in expected, f"{page.name}: {command}\n{told}"
            assert "Traceback" not in told, f"{page.name}: {command}\n{told}"


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
    assert own_words("parityscope a 'b?c&d' \\\n  \"e\"") == ["a", "b?c&d", "e"]
    assert not any(own_words(f"parityscope a {sign}") for sign in ("> b", "| c", "$d", "*.npz", "~/e", '"$f"'))
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
