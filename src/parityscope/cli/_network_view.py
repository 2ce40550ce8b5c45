"""What a command line asks of TensorRT's network view, as its options; and the view itself for commands that show it too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.cli import _options as o
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.records import Finding

__all__ = ["FixOption", "NetworkOption", "NetworkWords", "SettleOption", "asked_options", "view_network"]

FixOption = Annotated[list[str] | None, typer.Option(help="INPUT=VALUE: an input that becomes a constant; repeatable.")]
SettleOption = Annotated[
    bool, typer.Option("--settle", help="Compute what shapes and constants decide before the build.")
]
NetworkOption = Annotated[
    str,
    typer.Option(
        "--network", help="Also parse and build it without a GPU: trt or trt?key=value&... (docs/tensorrt.md)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkWords:
    """The words of the command line: a target of `trt`, DATA, and items as `--shapes` and `--fix` take them.

    `sizes` are the shapes of samples that were loaded already, by input.
    """

    candidate: str
    inputs: str = ""
    shapes: list[str] | None = None
    fix: list[str] | None = None
    product: str = ""
    sizes: tuple[Mapping[str, tuple[int, ...]], ...] = ()


def view_network(
    model: Path, asked: NetworkWords, *, version: str, command: str, log: Path
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """The network document of a model, and its findings.

    Raises:
        ParityError: an option cannot be met, or a dynamic input has no shape.
    """
    from parityscope.backends.tensorrt.findings import find_in_view
    from parityscope.backends.tensorrt.network import network_view
    from parityscope.report.network import network_document

    package, options = asked_options(model, asked)
    view = network_view(model, package, options, log_file=log)
    found = find_in_view(view)
    return network_document(view, found, model=model, version=version, command=command), found


def asked_options(
    path: Path, asked: NetworkWords, *, settle: bool = False, tf32: bool = False
) -> tuple[Package, TensorrtOptions]:
    """The package, and the options of the target with those of the command line.

    Raises:
        ParityError: the target is none of `trt`, or an option cannot be met.
    """
    from parityscope.backends import known_backend
    from parityscope.backends.targets import check_target, parse_target
    from parityscope.backends.tensorrt.options import options_of
    from parityscope.backends.tensorrt.packages import find_package
    from parityscope.backends.tensorrt.profiles import check_covered, ranges_of_samples
    from parityscope.backends.tensorrt.settling import value_of

    target = parse_target(asked.candidate)
    found = known_backend(target.backend)
    if found is None or found.tensorrt != "yes" or target.option("engine"):
        raise ParityError(
            f"{asked.candidate} is not built from a model by TensorRT", fix="write 'trt' or 'trt?key=value&...'"
        )
    check_target(target, found)
    package = find_package(asked.product or target.option("product"))
    if tf32:
        rest = tuple(item for item in target.options if item[0] != "tf32")
        target = replace(target, options=(*rest, ("tf32", "on")))
    options = options_of(target, package)
    values = dict(options.values)
    for item in asked.fix or []:
        name, equals, text = item.partition("=")
        if not (name and equals and text):
            raise ParityError(f"--fix {item!r} is not INPUT=VALUE", fix="write --fix sr=16000")
        values[name] = value_of(text, name)
    sizes = asked.sizes or (_shapes_of(path, asked.inputs) if asked.inputs else ())
    ranges = dict(options.shapes) or ranges_of_samples(sizes)
    ranges |= ranges_of_samples([o.shapes_of(asked.shapes)])
    ranges = {name: one for name, one in ranges.items() if name not in values}
    check_covered(ranges, sizes)
    settles = settle or options.settle or bool(values)
    return package, replace(options, shapes=ranges, values=values, settle=settles)


def _shapes_of(path: Path, inputs: str) -> list[dict[str, tuple[int, ...]]]:
    from parityscope.case import load_inputs, load_model

    with o.spool_folder() as scratch:
        loaded = load_inputs(load_model(path), inputs, spool=scratch)
        return [{name: array.shape for name, array in sample.arrays.items()} for sample in loaded]
