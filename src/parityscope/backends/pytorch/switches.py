"""PyTorch's switches of arithmetic: TF32 for products and for cuDNN, always set, never left to a default.

Two interfaces exist. PyTorch 2.9 and newer have `fp32_precision` ("ieee", "tf32") on each of its backends; older ones have
`allow_tf32`. Reading or setting the old one after the new one raises there, so each version is spoken to in its own.
Source: PyTorch documentation, "CUDA semantics", section on TensorFloat-32.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def set_tf32(torch: Any, *, tf32: bool) -> Iterator[None]:
    """TF32 on or off for products and convolutions on a GPU while the block lasts; what was set before comes back."""
    places = _tf32_switches(torch)
    before = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, _switch_value(name, on=tf32))
    try:
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


def torch_facts(torch: Any) -> dict[str, str]:
    """What this PyTorch says of itself: CUDA and cuDNN it was built with, GPUs, and its own defaults for TF32."""
    found = {
        "cuda": str(torch.version.cuda or "none: a CPU build"),
        "threads": str(torch.get_num_threads()),
        "default TF32 of products": _describe_switch(torch, 0),
        "default TF32 of convolutions": _describe_switch(torch, 1),
    }
    if torch.cuda.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["gpu"] = ", ".join(
            f"{torch.cuda.get_device_name(place)} (capability {'.'.join(map(str, torch.cuda.get_device_capability(place)))})"
            for place in range(torch.cuda.device_count())
        )
    return found


def _tf32_switches(torch: Any) -> list[tuple[Any, str]]:
    """The objects and attributes that switch TF32: products first, then cuDNN's convolutions."""
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(products, "fp32_precision"):
        return [(products, "fp32_precision"), (cudnn.conv, "fp32_precision"), (cudnn.rnn, "fp32_precision")]
    return [(products, "allow_tf32"), (cudnn, "allow_tf32")]


def _switch_value(name: str, *, on: bool) -> str | bool:
    if name == "allow_tf32":
        return on
    return "tf32" if on else "ieee"


def _describe_switch(torch: Any, index: int) -> str:
    place, name = _tf32_switches(torch)[index]
    found = getattr(place, name)
    return {"tf32": "on", "ieee": "off", "none": "off", True: "on", False: "off"}.get(found, str(found))
