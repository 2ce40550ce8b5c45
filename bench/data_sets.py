"""What a data set costs beside plain inference: `python bench/data_sets.py images|parquet [--samples N] [--beside]`.

`images` are N JPEGs (10,000) of 256 x 256 and a recipe's work for a convolutional network of 10 MB at 224 x 224; `parquet`
are N rows (100,000) of 256 numbers and a network of three products. Plain is a loop that reads a sample, prepares it and runs
both sides' sessions, with nothing compared and nothing kept; the other is `parityscope compare` on the same files. Both are
processes of their own with one thread each, measured by the processor time of the process and all that it started (so that
the load of the machine matters little) and by the largest resident memory of one of them. Both have run once before, on a few
samples, so that Python's own compiled files are there, as on any machine where something was installed. With `--beside` both run
at the same time, on a machine with cores to spare: 10,000 images take half as long then.

Prints a table in Markdown; nothing is asserted. Data and models are made by this script in a folder that is deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDE, STORED = 224, 256
WIDTH = 256
COUNTS = {"images": 10_000, "parquet": 100_000}
REFERENCE, CANDIDATE = "ort?threads=1", "ort?threads=1&optimization=basic"
PREPARE = '''"""The model's own preprocessing, as its training had it."""

import numpy as np
from PIL import Image

MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def prepare(image):
    resized = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BILINEAR), np.float32)
    return np.ascontiguousarray(((resized / 255 - MEAN) / DEVIATION).transpose(2, 0, 1)[None])
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(COUNTS))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--beside", action="store_true", help="both at the same time")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plain:
        plain(asked.kind, Path(asked.plain), asked.samples)
        return
    count = asked.samples or COUNTS[asked.kind]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = MAKERS[asked.kind](folder, count)
        plain_words = [sys.executable, __file__, asked.kind, "--plain", str(folder)]
        words = [
            "compare",
            str(folder / "m.onnx"),
            "--reference",
            REFERENCE,
            "--candidate",
            CANDIDATE,
            "--inputs",
            str(data),
        ]
        if asked.kind == "images":
            words += ["--preprocess", f"{folder / 'prepare.py'}:prepare"]
        words = [sys.executable, "-m", "parityscope", *words, "--quiet"]
        measure([*plain_words, "--samples", "2"], folder)
        measure([*words, "--samples", "2", "--study", str(folder / "few")], folder)
        with ThreadPoolExecutor(2 if asked.beside else 1) as runner:
            both = (plain_words, [*words, "--study", str(folder / "study")])
            alone, ours = runner.map(partial(measure, folder=folder), both)
    found = {"kind": asked.kind, "samples": count, "plain": alone, "compare": ours}
    over = ours["processor_s"] / alone["processor_s"] - 1
    print(
        f"| {asked.kind}, {count:,} | processor s | ms a sample | wall s | peak MiB |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for name, one in (("plain, both sides", alone), ("compare", ours)):
        each = 1e3 * one["processor_s"] / count
        print(f"| {name} | {one['processor_s']:.1f} | {each:.2f} | {one['wall_s']:.1f} | {one['peak_mib']:.0f} |")
    told = f"{'at the same time' if asked.beside else 'one after the other'}, load {os.getloadavg()[0]:.1f}"
    print(f"\nover plain: {100 * over:.1f} %; exit {ours['status']:.0f}; {told} on {os.cpu_count()} cores")
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measure(command: list[str], folder: Path) -> dict[str, float]:
    """Processor seconds, seconds by the clock, and the largest resident memory of a process that the command was."""
    start = time.perf_counter()
    one = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    with tempfile.TemporaryFile(dir=folder) as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **one})
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in {0, 1}:
            said.seek(0)
            raise SystemExit(said.read().decode())
    return {
        "processor_s": used.ru_utime + used.ru_stime,
        "wall_s": time.perf_counter() - start,
        "peak_mib": used.ru_maxrss / 1024,
        "status": process.returncode,
    }


def plain(kind: str, folder: Path, samples: int | None) -> None:
    """Both sides on every sample, or the first of them, and nothing else."""
    import onnxruntime as ort

    sessions = []
    for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.graph_optimization_level = 1, level
        sessions.append(ort.InferenceSession(str(folder / "m.onnx"), options, providers=["CPUExecutionProvider"]))
    for sample in islice(READERS[kind](folder), samples):
        for session in sessions:
            session.run(None, {"x": sample})


def read_images(folder: Path) -> Iterator[np.ndarray]:
    from PIL import Image

    sys.path.insert(0, str(folder))
    from prepare import prepare  # type: ignore[import-not-found]

    for path in sorted((folder / "images").iterdir()):
        with Image.open(path) as image:
            yield prepare(np.asarray(image.convert("RGB")))


def read_parquet(folder: Path) -> Iterator[np.ndarray]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / "rows.parquet") as file:
        for batch in file.iter_batches(batch_size=1024, columns=["x"]):
            values = batch.column(0).flatten().to_numpy().reshape(-1, WIDTH)
            for row in range(batch.num_rows):
                yield values[row : row + 1]


def make_images(folder: Path, count: int) -> Path:
    """Smooth random pictures, 256 of them moved and brightened, so that none is like another."""
    from PIL import Image

    save(folder, convolutions())
    (folder / "prepare.py").write_text(PREPARE, encoding="utf-8")
    (folder / "images").mkdir()
    generator = np.random.default_rng(0)
    size = (STORED, STORED)
    coarse = [Image.fromarray(generator.integers(0, 256, (12, 12, 3), np.uint8)).resize(size) for _ in range(256)]
    drawn = [np.asarray(one, np.int16) for one in coarse]
    for index in range(count):
        moved = np.roll(drawn[index % 256], (index // 256 * 7, index // 256 * 3), (0, 1))
        picture = np.clip(moved + generator.integers(-30, 31, 3), 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"{index:06d}.jpg", quality=90)
    return folder / "images"


def make_parquet(folder: Path, count: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    save(folder, products())
    generator = np.random.default_rng(0)
    schema = pa.schema([("x", pa.list_(pa.float32(), WIDTH)), ("class", pa.int64())])
    with pq.ParquetWriter(folder / "rows.parquet", schema) as file:
        for start in range(0, count, 10_000):
            rows = min(10_000, count - start)
            x = pa.FixedSizeListArray.from_arrays(pa.array(generator.random(rows * WIDTH, np.float32)), WIDTH)
            file.write_table(pa.table({"x": x, "class": pa.array(generator.integers(0, 10, rows))}, schema=schema))
    return folder / "rows.parquet"


def convolutions() -> onnx.GraphProto:
    """Depthwise and pointwise convolutions, three quarters of MobileNet's widths (Howard et al. 2017): 2.6 million weights."""
    generator = np.random.default_rng(0)
    nodes, weights, name, channels = [], [], "x", 3

    def convolve(name: str, before: int, after: int, kernel: int, stride: int, groups: int) -> str:
        place = len(weights) // 2
        scale = np.sqrt(2 / (before // groups * kernel * kernel))
        shape = (after, before // groups, kernel, kernel)
        weights.append(
            numpy_helper.from_array((generator.standard_normal(shape) * scale).astype(np.float32), f"w{place}")
        )
        weights.append(numpy_helper.from_array(np.zeros(after, np.float32), f"b{place}"))
        pads = [kernel // 2] * 4
        made = helper.make_node(
            "Conv", [name, f"w{place}", f"b{place}"], [f"c{place}"], strides=[stride] * 2, pads=pads, group=groups
        )
        nodes.extend((made, helper.make_node("Clip", [f"c{place}", "low", "high"], [f"r{place}"])))
        return f"r{place}"

    name, channels = convolve(name, 3, 24, 3, 2, 1), 24
    for after, stride in ((48, 1), (96, 2), (96, 1), (192, 2), (192, 1), (384, 2), *[(384, 1)] * 5, (768, 2), (768, 1)):
        name = convolve(name, channels, channels, 3, stride, channels)
        name, channels = convolve(name, channels, after, 1, 1, 1), after
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", "w", "b"], ["y"]))
    last = (generator.standard_normal((channels, 1000)) / np.sqrt(channels)).astype(np.float32)
    weights += [numpy_helper.from_array(last, "w"), numpy_helper.from_array(np.zeros(1000, np.float32), "b")]
    weights += [numpy_helper.from_array(np.float32(value), name) for name, value in (("low", 0), ("high", 6))]
    return helper.make_graph(nodes, "pictures", [floats("x", 1, 3, SIDE, SIDE)], [floats("y", 1, 1000)], weights)


def products() -> onnx.GraphProto:
    """Three products of 256, 512 and 512 numbers to 10."""
    generator = np.random.default_rng(0)
    nodes, weights, name, before = [], [], "x", WIDTH
    for place, after in enumerate((512, 512, 10)):
        w = (generator.standard_normal((before, after)) / np.sqrt(before)).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"w{place}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{place}"], [f"p{place}"]))
        nodes.append(
            helper.make_node("Relu" if after > 10 else "Identity", [f"p{place}"], [f"r{place}" if after > 10 else "y"])
        )
        name, before = f"r{place}", after
    return helper.make_graph(nodes, "rows", [floats("x", 1, WIDTH)], [floats("y", 1, 10)], weights)


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def save(folder: Path, graph: onnx.GraphProto) -> None:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")


MAKERS = {"images": make_images, "parquet": make_parquet}
READERS = {"images": read_images, "parquet": read_parquet}

if __name__ == "__main__":
    main()
