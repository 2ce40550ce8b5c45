"""What many cases begin with: a small model that is right, its samples, its answers, and the command lines about them."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from proving.hostile.cases import ANSWERED, Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from proving.hostile.cases import Draw

COUNT = 3  # samples of a data set that is right
_WEIGHTS = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
_BIAS = np.linspace(-0.5, 0.5, 4, dtype=np.float32)

# Names that a terminal, a page, a path or a format may stumble over.
NAMES: Sequence[str] = (
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[1;31mred",
    "a\nparityscope: within\n",
    "a\r\x1b[Kwithin",
    "\x9b31m",
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "[bold red]x[/bold red] [/nothing]",
    "../../outside/ran",
    "/etc/passwd",
    "名字/тензор/🎉",
    "\u202egnp.exe",
    "n" * 70_000,
    " ",
    "a=b,c:d?e&f#g%41",
    "%s %n {0} {x!r} $(id) `id`",
    "\x00nul",
    "-",
    "--help",
)


def rows(count: int = COUNT, seed: int = 1) -> list[np.ndarray]:
    """Samples of the small model's input."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(1, 8)).astype(np.float32) for _ in range(count)]


def answer(x: np.ndarray) -> np.ndarray:
    """What the small model makes of a sample."""
    return np.maximum(x @ _WEIGHTS + _BIAS, 0).astype(np.float32)


def graph_of(
    nodes: Sequence[onnx.NodeProto], x: str = "x", y: str = "y", extra: Sequence[onnx.TensorProto] = ()
) -> onnx.ModelProto:
    """A model of these nodes from `x` [1, 8] to `y` [1, 4], with the small model's weights."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(_WEIGHTS, "w"), numpy_helper.from_array(_BIAS, "b"), *extra],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def small_model(x: str = "x", y: str = "y") -> onnx.ModelProto:
    """A product, a sum and a Relu."""
    return graph_of(
        [
            helper.make_node("MatMul", [x, "w"], ["product"], name="product"),
            helper.make_node("Add", ["product", "b"], ["sum"], name="sum"),
            helper.make_node("Relu", ["sum"], [y], name="relu"),
        ],
        x,
        y,
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Writes a model without asking whether it is one."""
    path.write_bytes(model.SerializeToString())
    return path


def write_model(folder: Path, name: str = "model.onnx") -> Path:
    """The small model."""
    return save(small_model(), folder / name)


def write_samples(
    folder: Path, name: str = "samples", arrays: Sequence[Mapping[str, np.ndarray]] | None = None
) -> Path:
    """A folder of samples, by default the small model's."""
    place = folder / name
    place.mkdir(exist_ok=True)
    for number, sample in enumerate(arrays if arrays is not None else [{"x": x} for x in rows()]):
        np.savez(place / f"{number:06d}.npz", **sample)
    return place


def write_answers(folder: Path, name: str = "answers", change: Callable[[np.ndarray], np.ndarray] = answer) -> Path:
    """What a deployment recorded: by default the right answers."""
    return write_samples(folder, name, [{"y": change(x)} for x in rows()])


def about_model(folder: Path, draw: Draw, model: str = "model.onnx", data: str = "samples") -> tuple[str, ...]:
    """One of the command lines that read a model, with right samples and a right model beside it."""
    if not (folder / data).exists():
        write_samples(folder, data)
    write_model(folder, "right.onnx")
    lines: Sequence[tuple[str, ...]] = (
        ("lint", model),
        ("compare", model, "--candidate", "sim:f16", "--inputs", data),
        ("predict", model, "--inputs", data, "--formats", "f16"),
        ("run", model, "--inputs", data, "-o", "recording"),
        ("diagnose", model, "--candidate", "sim:bf16", "--inputs", data),
        ("evaluate", model, "--reference", "right.onnx", "--inputs", data),
        ("localize", model, "--candidate", "ort?optimization=disabled", "--inputs", data),
        ("repair", model, "--inputs", data, "-o", "fixed.onnx"),
        ("verify", model, "--before", "sim:f16", "--after", "ort", "--inputs", data, "--no-timing"),
        ("compare", "right.onnx", "--candidate", f"ort?model={model}", "--inputs", data),
        ("compare", model, "--candidate", "sim:f16", "--samples", "2"),
        ("lint", model, "--format", "json"),
    )
    return draw.turn(lines)


def about_samples(folder: Path, draw: Draw, data: str) -> tuple[str, ...]:
    """One of the command lines that read samples, with the right model and right answers beside them."""
    write_model(folder)
    write_answers(folder)
    lines: Sequence[tuple[str, ...]] = (
        ("run", "model.onnx", "--inputs", data, "-o", "recording"),
        ("compare", "model.onnx", "--candidate", "saved?path=answers", "--inputs", data),
        ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", data),
        ("predict", "model.onnx", "--inputs", data, "--formats", "bf16", "--draws", "1"),
        ("repair", "model.onnx", "--inputs", data, "-o", "fixed.onnx"),
        ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", data, "--no-timing"),
        ("evaluate", "model.onnx", "--reference", "model.onnx", "--inputs", data),
        ("localize", "model.onnx", "--candidate", "sim:f16", "--inputs", data),
    )
    return draw.turn(lines)


def about_answers(folder: Path, draw: Draw, data: str, options: str = "") -> tuple[str, ...]:
    """One of the command lines that read what a deployment recorded."""
    write_model(folder)
    write_samples(folder)
    target = f"saved?path={data}{options}"
    lines: Sequence[tuple[str, ...]] = (
        ("compare", "model.onnx", "--candidate", target, "--inputs", "samples"),
        ("diagnose", "model.onnx", "--candidate", target, "--inputs", "samples"),
        ("verify", "model.onnx", "--before", target, "--after", "ort", "--inputs", "samples", "--no-timing"),
        ("compare", "model.onnx", "--reference", target, "--candidate", "ort", "--inputs", "samples"),
    )
    return draw.turn(lines)


def warming(folder: Path, draw: Draw) -> Ask:
    """Commands that are right, before all others: they fill the caches that every later one reads."""
    write_model(folder)
    write_samples(folder)
    lines = (
        ("predict", "model.onnx", "--inputs", "samples"),
        ("diagnose", "model.onnx", "--candidate", "sim:f16", "--inputs", "samples"),
        ("repair", "model.onnx", "--inputs", "samples", "-o", "fixed.onnx", "--budget", "rel_l2=1e-9"),
    )
    return Ask(lines[draw.number], ANSWERED)


class Trap:
    """What a pickle runs when it is read: a program that leaves the marker."""

    def __init__(self, folder: Path) -> None:
        self.command = marking(folder)

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def marking(folder: Path) -> str:
    """A shell's line that leaves the marker of code that ran."""
    return f"touch {folder.parent / 'outside' / 'ran'}"


def marking_source(folder: Path) -> str:
    """A module that leaves the marker when it is imported, with a function of any use."""
    touch = f"pathlib.Path({str(folder.parent / 'outside' / 'ran')!r}).touch()"
    return f"import pathlib\n{touch}\ndef run(*a, **k):\n    {touch}\n"


def special_file(path: Path, kind: str) -> Path:
    """Something at `path` that is no regular file, or none that may be read."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        holder = socket.socket(socket.AF_UNIX)
        place = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        holder.bind(path.name)
        os.chdir(place)
        holder.close()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(40 << 30)
    elif kind == "unreadable":
        path.write_bytes(b"x" * 100)
        path.chmod(0)
    elif kind == "terminal":
        path.symlink_to("/dev/tty")
    elif kind == "standard input":
        path.symlink_to("/dev/stdin")
    elif kind == "memory":
        path.symlink_to("/proc/self/mem")
    return path


SPECIAL: Sequence[str] = tuple(
    "fifo,folder,socket,loop,dangling,endless,empty,sparse,unreadable,terminal,standard input,memory".split(",")
)
