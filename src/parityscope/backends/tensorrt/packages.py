"""Which TensorRT is here: `tensorrt` (8.6 to 11) or `tensorrt_rtx`, and what its version has.

TensorRT 11 has no weak typing (precision flags, layer precisions, calibration): a precision is then written into the ONNX
graph. TensorRT-RTX is like it. Source: NVIDIA's "Migrating from TensorRT 10.x to 11.x".
"""

from __future__ import annotations

import importlib
from typing import Any

from parityscope.backends.gpu import find_driver
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

PRODUCTS = ("tensorrt", "rtx")
_MODULES = {"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}
_FIX = {
    "tensorrt": "pip install 'parityscope[tensorrt]' beside NVIDIA's libraries of the same version, or use product=rtx",
    "rtx": "pip install 'parityscope[tensorrt-rtx]' (Linux on x86-64)",
}
_FIRST_SUPPORTED = (8, 6)
_RTX_CAPABILITIES = frozenset({(8, 0), (8, 6), (8, 9)})
_RTX_MAJOR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A TensorRT that can be imported: its module, product ("tensorrt" or "rtx") and version."""

    module: Any
    product: str
    version: str

    @property
    def title(self) -> str:
        """What NVIDIA calls it."""
        return "TensorRT-RTX" if self.product == "rtx" else "TensorRT"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers: "10.13.2.6" is (10, 13, 2, 6)."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())

    @property
    def weakly_typed(self) -> bool:
        """Whether precision flags and layer precisions exist: TensorRT 8 to 10."""
        return self.product == "tensorrt" and self.numbers[0] < 11

    @property
    def strongly_typed(self) -> bool:
        """Whether a network can be strongly typed: since TensorRT 9, and always in 11 and RTX."""
        return self.product == "rtx" or self.numbers[0] >= 9


def find_package(product: str = "") -> Package:
    """The TensorRT called `product`, or the first there is.

    Raises:
        ParityError: none is here, its libraries do not load, or it is older than 8.6.
    """
    if product and product not in _MODULES:
        raise ParityError(f"there is no product {product!r}", fix=f"use product={'|'.join(PRODUCTS)}")
    problems = []
    for name in (product,) if product else PRODUCTS:
        found, problem = _import_package(name)
        if found is not None:
            return found
        problems.append(problem)
    raise ParityError("; ".join(problems), fix=_FIX[product or "rtx"])


def gpu_problem(package: Package) -> str:
    """Why no engine can run here; empty if one can. Building needs no GPU with TensorRT-RTX, running does."""
    driver = find_driver()
    if not driver.gpus:
        return f"{driver.problem}, so no engine can run here"
    return capability_problem(package.product, driver.gpus[0].capability)


def capability_problem(product: str, capability: tuple[int, int]) -> str:
    """Why a product runs no engine on a GPU of this compute capability; empty if nothing is known against it.

    TensorRT-RTX 1.7 is for GeForce and RTX GPUs: 8.0, 8.6, 8.9 and 12.x; it refuses 9.0 (Hopper). Source: its error.
    """
    if product != "rtx" or capability in _RTX_CAPABILITIES or capability[0] == _RTX_MAJOR:
        return ""
    has = ".".join(str(number) for number in capability)
    return (
        f"TensorRT-RTX runs on compute capability 8.0, 8.6, 8.9 and 12.x, this GPU has {has}; so no engine can run here"
    )


def _import_package(name: str) -> tuple[Package | None, str]:
    try:
        module = importlib.import_module(_MODULES[name])
    except (ImportError, OSError, RuntimeError) as error:
        # The bindings raise OSError or RuntimeError when NVIDIA's libraries are missing.
        return None, f"{_MODULES[name]} cannot be imported: {str(error).splitlines()[0]}"
    version = str(getattr(module, "__version__", ""))
    if not hasattr(module, "Builder"):
        return None, f"{_MODULES[name]} has no builder: NVIDIA's libraries are missing"
    found = Package(module=module, product=name, version=version)
    if name == "tensorrt" and found.numbers[:2] < _FIRST_SUPPORTED:
        return None, f"tensorrt {version} is too old: 8.6 is the first that is supported"
    return found, ""
