"""What a command line asks of TensorRT's view of a model, as its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parityscope.errors import ParityError

if TYPE_CHECKING:
    import numpy as np

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


def values_of(items: list[str] | None) -> dict[str, np.ndarray]:
    """`INPUT=VALUE` items as arrays by input.

    Raises:
        ParityError: an item is not of that form.
    """
    from parityscope.backends.tensorrt.settling import value_of

    found = {}
    for item in items or []:
        name, equals, text = item.partition("=")
        if not (name and equals and text):
            raise ParityError(f"--fix {item!r} is not INPUT=VALUE", fix="write --fix sr=16000")
        found[name] = value_of(text, name)
    return found
