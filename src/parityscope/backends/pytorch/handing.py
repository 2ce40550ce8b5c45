"""A network that a Python program has in its hands -> the target that runs it, while the program lends it.

Others know no name of it: a study that says `module=handed:1` names nothing that could be run again.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_HANDED: dict[str, Any] = {}  # what this process handed over, by the text that stands for it in a target
_NUMBERS = itertools.count(1)


def is_network(value: object) -> bool:
    """Whether it is a `torch.nn.Module` or an `ExportedProgram`; torch is not imported to say so."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module | torch.export.ExportedProgram)


@contextlib.contextmanager
def handed_network(network: Any) -> Iterator[str]:
    """The target that runs `network`, as text, while the block lasts; a module is run in eval mode, as a copy.

    A compiled module (`torch.compile`) is run as it is, in the mode that it is in.
    """
    text = f"handed:{next(_NUMBERS)}"
    _HANDED[text] = network
    kind = "module" if hasattr(network, "forward") else "program"
    compiled = "&compile=on&mode=kept" if hasattr(network, "_orig_mod") else ""
    try:
        yield f"torch?{kind}={text}{compiled}"
    finally:
        del _HANDED[text]


def find_handed(text: str) -> Any:
    """The network that a target's text stands for; None where nothing of that name was handed over."""
    return _HANDED.get(text)
