"""What the network view shows that a user must know before the engine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.logs import find
from parityscope.records import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.backends._tensorrt.network import NetworkView

__all__ = ["find_in_view"]

_SURE = "read from the network and the engine"


def find_in_view(view: NetworkView) -> tuple[Finding, ...]:
    """Findings: those of the build's log, the refusal, and the order of inputs."""
    return (*_refused(view), *_order(view), *(one for one in find(view.log) if one.code != "EXP201"))


def _refused(view: NetworkView) -> Iterator[Finding]:
    if view.problem:
        yield Finding(
            code="EXP201",
            title="TensorRT does not build this model",
            role="cause",
            claim=view.problem,
            confidence=1.0,
            confidence_from=_SURE,
            details={"nodes": [node.node for node in view.nodes if node.reason != "nothing was built"]},
        )


def _order(view: NetworkView) -> Iterator[Finding]:
    """Inputs of one type that a program which binds by position could swap unnoticed, in the order that it needs."""
    names = view.engine_inputs
    absent = [name for name in view.file_inputs if name not in names]
    kinds: dict[tuple[object, ...], list[str]] = {}
    for tensor in view.inputs:
        kinds.setdefault((tensor.dtype, *tensor.shape), []).append(tensor.name)
    alike = [group for group in kinds.values() if len(group) > 1]
    if names and names != view.file_inputs:
        left = f"; {', '.join(absent)} of the file is no input of the engine" if absent else ""
        yield Finding(
            code="BND202",
            title="the engine's inputs are in another order than the file's",
            role="contributing",
            claim=f"the engine wants {', '.join(names)}, the file has {', '.join(view.file_inputs)}{left}: bind by name",
            confidence=1.0,
            confidence_from=_SURE,
            details={"engine": list(names), "file": list(view.file_inputs)},
        )
    if names and alike:
        shown = "; ".join(", ".join(group) for group in alike)
        yield Finding(
            code="BND203",
            title="inputs that can be swapped unnoticed",
            role="information",
            claim=f"these inputs have the same type and shape: {shown}. A program that binds by position must feed them as "
            f"{', '.join(names)}; nothing fails when it does not",
            confidence=1.0,
            confidence_from=_SURE,
            details={"order": list(names)},
        )
