"""What commands hold at most: `python bench/memory.py [--big | --decoder] [--json FILE]`.

Of each command, as a process of its own with all that it starts: the largest sum of resident memory (each page that several
processes map counts once: the sum of proportional shares in `smaps_rollup`), read every 20 ms. Beside it the runtime's own plain
run of that model, and the limit: 0.3 times the weights, `--memory` and 300 MB above the plain run. The text detector runs with
`--memory 128MiB`; `--big` makes a network of 2.4 GB with external data in a folder that is deleted afterwards, `--decoder` a
step of a language model of 2.8 GB: a table of 151,936 tokens, two layers and a head as ONNX Runtime's generators write them
(GroupQueryAttention with a cache, MatMulNBits of four bits), with random weights.

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
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper
from whole import PLAIN, QUIET, with_a_fault

from parityscope.case.formats.npz import write_npz
from proving.models.fetching import model_path
from proving.models.samples import sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    parser.add_argument("--decoder", action="store_true", help="the language model of 2.8 GB instead of the detector")
    parser.add_argument("--what", action="append", help="only this command; repeatable")
    parser.add_argument("--json", help="a file for all figures")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make, name = (big, "2.4 GB") if asked.big else (decoder, "decoder") if asked.decoder else (detector, "ocr-det")
        model, broken = make(folder)
        peaks = measure(name, model, broken, folder, asked.what)
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
            *rest,
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


TOKENS, HIDDEN, INNER, HEADS, GROUPS, PAST, BLOCK = 151_936, 3584, 18_944, 28, 4, 8, 32
HEAD = HIDDEN // HEADS


class Beside:
    """Weights that lie in a file beside the model, one behind the other."""

    def __init__(self, path: Path) -> None:
        self.file, self.name = path.open("wb"), path.name
        self.tensors: list[onnx.TensorProto] = []

    def add(self, name: str, shape: Sequence[int], blocks: Iterable[np.ndarray]) -> None:
        start, kind = self.file.tell(), np.dtype(np.float32)
        for block in blocks:
            kind = block.dtype
            self.file.write(block.tobytes())
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=helper.np_dtype_to_tensor_dtype(kind))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        places = {"location": self.name, "offset": start, "length": self.file.tell() - start}
        for key, value in places.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)


def decoder(folder: Path) -> tuple[Path, Path]:
    """A step of a language model, and the same with a tenth added to the scales of the second layer's values."""
    draw = np.random.default_rng(0)
    model, broken = folder / "network.onnx", folder / "broken.onnx"
    beside = Beside(model.with_suffix(".data"))
    rows = 1024
    table = (draw.standard_normal((min(rows, TOKENS - at), HIDDEN), np.float32) for at in range(0, TOKENS, rows))
    beside.add("table", (TOKENS, HIDDEN), table)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h0"], name="table")]
    small = {"eps": np.float32(1e-6), "two": np.float32(2)}

    def product(name: str, given: str, to: int) -> str:
        of = INNER if name.endswith("down") else HIDDEN
        beside.add(f"{name}.w", (to, of // BLOCK, BLOCK // 2), [draw.integers(0, 256, (to, of // 2), np.uint8)])
        # 16 values around zero have a deviation of 4.6.
        scales = draw.uniform(0.5, 1.5, to * of // BLOCK).astype(np.float32) / np.float32(4.6 * of**0.5)
        if name == "1.v":
            small[f"{name}.s"] = scales
        else:
            beside.add(f"{name}.s", scales.shape, [scales])
        sizes = {"K": of, "N": to, "bits": 4, "block_size": BLOCK}
        given_all = [given, f"{name}.w", f"{name}.s"]
        nodes.append(helper.make_node("MatMulNBits", given_all, [name], name=name, domain="com.microsoft", **sizes))
        return name

    def apply(kind: str, given: Sequence[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(given), [name], name=name, **attributes))
        return name

    def normalize(given: str, name: str) -> str:
        mean = apply("ReduceMean", [apply("Pow", [given, "two"], f"{name}.squares")], f"{name}.mean", axes=[-1])
        return apply("Div", [given, apply("Sqrt", [apply("Add", [mean, "eps"], f"{name}.add")], f"{name}.root")], name)

    angles = np.outer(np.arange(4096), 1e6 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
    for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        beside.add(name, values.shape, [values.astype(np.float32)])
    given, told, hidden = [], [], "h0"
    for at in range(2):
        normal = normalize(hidden, f"{at}.norm")
        sides = [
            product(f"{at}.{part}", normal, to * HEAD) for part, to in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        ]
        caches = [f"{at}.past_{part}" for part in "kv"]
        grown = [f"{at}.present_{part}" for part in "kv"]
        given += [floats(name, 1, GROUPS, PAST, HEAD) for name in caches]
        told += [floats(name, 1, GROUPS, PAST + 1, HEAD) for name in grown]
        attention = helper.make_node(
            "GroupQueryAttention",
            [*sides, *caches, "seqlens", "total", "cos", "sin"],
            [f"{at}.attention", *grown],
            name=f"{at}.attention",
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=1,
        )
        nodes.append(attention)
        hidden = apply("Add", [hidden, product(f"{at}.o", f"{at}.attention", HIDDEN)], f"{at}.attended")
        normal = normalize(hidden, f"{at}.norm2")
        gate = product(f"{at}.gate", normal, INNER)
        gate = apply("Mul", [gate, apply("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        inner = apply("Mul", [gate, product(f"{at}.up", normal, INNER)], f"{at}.inner")
        hidden = apply("Add", [hidden, product(f"{at}.down", inner, HIDDEN)], f"h{at + 1}")
    product("logits", normalize(hidden, "norm"), TOKENS)
    beside.file.close()
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 1])
    sizes = {"seqlens": np.array([PAST], np.int32), "total": np.int32(PAST + 1)}
    for path, factor in ((model, 1.0), (broken, 1.1)):
        held = {**small, **sizes, "1.v.s": small["1.v.s"] * np.float32(factor)}
        tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
        graph = helper.make_graph(
            nodes, "decoder", [ids, *given], [floats("logits", 1, 1, TOKENS), *told], [*beside.tensors, *tensors]
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    caches = {one.name: draw.standard_normal((1, GROUPS, PAST, HEAD)).astype(np.float32) for one in given}
    write_npz(folder / "x.npz", {"ids": np.array([[4711]]), **caches})
    return model, broken


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


if __name__ == "__main__":
    main()
