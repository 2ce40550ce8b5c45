"""What commands hold at most: `python bench/memory.py [--big] [--json FILE]`.

Of each command, as a process of its own with all that it starts: the largest sum of resident memory (each page that several
processes map counts once: the sum of proportional shares in `smaps_rollup`), read every 20 ms. Beside it the runtime's own plain
run of that model, and the limit: 0.3 times the weights, `--memory` and 300 MB above the plain run. The text detector runs with
`--memory 128MiB`; `--big` makes a network of 2.4 GB with external data in a folder that is deleted afterwards.

Prints a table in Markdown; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from whole import PLAIN, QUIET, with_a_fault

from parityscope.case.formats.npz import write_npz
from proving.models.fetching import model_path
from proving.models.samples import sample_of

MEMORY = 128 << 20
ABOVE = 300e6
OF_WEIGHTS = 0.3
SHORT = ("--evaluations", "12")  # of a search: what it holds does not grow with them
WIDTH, LAYERS, ROWS = 8192, 9, 4  # 9 products of 8192 x 8192 numbers: 2.4 GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The largest memory of a command and what it may be, in MB, and its seconds by the clock and exit code."""

    model: str
    what: str
    status: int
    seconds: float
    peak_mb: float
    limit_mb: float


def main() -> None:
    """Measures every command on the detector, and with --big on the large network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--big", action="store_true", help="the network of 2.4 GB instead of the detector")
    parser.add_argument("--what", action="append", help="only this command; repeatable")
    parser.add_argument("--json", help="a file for all figures")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, broken = big(folder) if asked.big else detector(folder)
        peaks = measure("2.4 GB" if asked.big else "ocr-det", model, broken, folder, asked.what)
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(one) for one in peaks], indent=1), encoding="utf-8")
    print("| network | command | exit | seconds | peak MB | limit MB |\n| --- | --- | --- | --- | --- | --- |")
    for one in peaks:
        print(
            f"| {one.model} | {one.what} | {one.status} | {one.seconds:.1f} | {one.peak_mb:.0f} | {one.limit_mb:.0f} |"
        )


def measure(name: str, model: Path, broken: Path, folder: Path, chosen: list[str] | None) -> list[Peak]:
    """The plain run, then every command."""
    inputs, study, mended = folder / "x.npz", folder / "study", folder / "mended.onnx"
    ours = [sys.executable, "-m", "parityscope"]
    rest = ["--inputs", str(inputs), "--quiet", "--memory", f"{MEMORY >> 20}MiB"]
    within, faulty = "ort?optimization=disabled", f"ort?model={broken}"
    lines = {
        "compare": ["compare", str(model), "--candidate", within, *rest, "--study", str(study)],
        "localize": ["localize", str(model), "--candidate", faulty, *rest, "--study", str(study)],
        "diagnose": ["diagnose", str(model), "--candidate", faulty, *rest, "--study", str(study)],
        "sim": ["run", str(model), "--target", "sim:f16", *rest, "-o", str(study)],
        "predict": ["predict", str(model), "--formats", "f16,bf16", *rest],
        "repair": [
            "repair",
            str(model),
            "--low",
            "bf16",
            "--budget",
            "rel_l2=0.01",
            *SHORT,
            *rest[:3],
            "-o",
            str(mended),
        ],
    }
    status, seconds, plain = watched([sys.executable, "-c", PLAIN, str(model), str(inputs)])
    found = [
        Peak(model=name, what="one plain inference", status=status, seconds=seconds, peak_mb=plain, limit_mb=plain)
    ]
    weights = sum(one.stat().st_size for one in (model, model.with_suffix(".data")) if one.exists())
    limit = plain + (OF_WEIGHTS * weights + MEMORY + ABOVE) / 1e6
    for what, words in lines.items():
        if chosen and what not in chosen:
            continue
        shutil.rmtree(study, ignore_errors=True)
        status, seconds, peak = watched([*ours, *words])
        found.append(Peak(model=name, what=what, status=status, seconds=seconds, peak_mb=peak, limit_mb=limit))
        print(f"{what:12} exit {status} {seconds:6.1f} s {peak:6.0f} MB of {limit:.0f}", file=sys.stderr, flush=True)
    return found


def watched(words: list[str]) -> tuple[int, float, float]:
    """(exit code, wall s, peak MB) of a process and all below it."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(words, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, sum(map(held, descendants(process.pid))))
        time.sleep(0.02)
    return process.returncode, time.perf_counter() - start, peak / 1e6


def descendants(number: int) -> list[int]:
    """A process and all that it started, and those started."""
    found, left = [], [number]
    while left:
        found.append(left.pop())
        try:
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def held(number: int) -> int:
    """Bytes of memory that a process holds, its share of what several map."""
    try:
        text = Path(f"/proc/{number}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def detector(folder: Path) -> tuple[Path, Path]:
    """The text detector, and with a tenth added to the weights of its middle product; its sample is in the folder."""
    model, broken = folder / "network.onnx", folder / "broken.onnx"
    model.symlink_to(model_path("ocr-det"))
    onnx.save(with_a_fault(onnx.load(model)), broken)
    write_npz(folder / "x.npz", sample_of("ocr-det"))
    return model, broken


def big(folder: Path) -> tuple[Path, Path]:
    """Products one behind the other, each with a Tanh behind it, weights in a file beside; and the same with a fault."""
    draw = np.random.default_rng(0)
    model, broken, size = folder / "network.onnx", folder / "broken.onnx", WIDTH * WIDTH * 4
    for path, faulty in ((model, -1), (broken, LAYERS // 2)):
        graph = helper.make_graph(
            [
                node
                for at in range(LAYERS)
                for node in (
                    helper.make_node("MatMul", [f"h{at}", f"w{at}"], [f"p{at}"], name=f"product{at}"),
                    helper.make_node("Tanh", [f"p{at}"], [f"h{at + 1}"], name=f"gate{at}"),
                )
            ],
            "big",
            [helper.make_tensor_value_info("h0", onnx.TensorProto.FLOAT, [ROWS, WIDTH])],
            [helper.make_tensor_value_info(f"h{LAYERS}", onnx.TensorProto.FLOAT, [ROWS, WIDTH])],
        )
        data = path.with_suffix(".data")
        draw = np.random.default_rng(0)
        with data.open("wb") as file:
            for at in range(LAYERS):
                weights = draw.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
                file.write((weights * np.float32(1.1 if at == faulty else 1.0)).tobytes())
                tensor = onnx.TensorProto(name=f"w{at}", dims=[WIDTH, WIDTH], data_type=onnx.TensorProto.FLOAT)
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", data.name), ("offset", str(at * size)), ("length", str(size))):
                    tensor.external_data.add(key=key, value=value)
                graph.initializer.append(tensor)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    write_npz(folder / "x.npz", {"h0": draw.standard_normal((ROWS, WIDTH)).astype(np.float32)})
    return model, broken


if __name__ == "__main__":
    main()
