"""What the first bytes of an engine tell, without loading it: product, version, and whether it is whole.

* bytes 0 to 3: `ftrt` (TensorRT from 8 on), `ptrt` (before) or `vtrt` (TensorRT-RTX);
* bytes 16 to 23: the length of the whole file, little-endian (seen in engines of TensorRT-RTX 1.7);
* bytes 24 to 27: major, minor, patch and build of the version. Source: printPlanVersion in trtexec's sampleEngines.cpp
  (--getPlanVersionOnly, 9 and newer); engines of TensorRT-RTX 1.7 have theirs in the same place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.backends.tensorrt.packages import Package

__all__ = ["check_plan", "plan_version"]

_HEADER = 28
_FIRST_COMPATIBLE = (8, 6)
_PRODUCTS = {b"ftrt": "tensorrt", b"ptrt": "tensorrt", b"vtrt": "rtx"}
_TITLES = {"tensorrt": "TensorRT", "rtx": "TensorRT-RTX"}


def plan_version(content: bytes) -> tuple[str, str] | None:
    """(product, version) of an engine; None if the bytes are no engine's."""
    product = _PRODUCTS.get(content[:4])
    if product is None or len(content) < _HEADER:
        return None
    return product, ".".join(str(number) for number in content[24:28])


def check_plan(content: bytes, path: Path, package: Package) -> None:
    """Checks that `content` can be an engine of `package`.

    Raises:
        ParityError: it is no engine, is truncated, or is another product's or another version's.
    """
    found = plan_version(content)
    if found is None:
        what = "too short for an engine" if content[:4] in _PRODUCTS else "no engine of TensorRT"
        hint = "it is an ONNX file: leave engine= out" if path.suffix == ".onnx" else "build it again"
        raise ParityError(f"{path.name} is {what}", where=str(path), fix=hint)
    product, version = found
    if product != package.product:
        title = _TITLES[product]
        raise ParityError(
            f"{path.name} is an engine of {title} {version}, not of {_TITLES[package.product]}",
            where=str(path),
            fix=f"add product={product} to the target",
        )
    if product == "rtx" and (length := int.from_bytes(content[16:24], "little")) != len(content):
        raise ParityError(
            f"{path.name} is truncated: it has {len(content):,} of {length:,} bytes",
            where=str(path),
            fix="copy it again",
        )
    ours = ".".join(str(number) for number in package.numbers[:3])
    if _never_loads(product, tuple(content[24:28]), package):
        raise ParityError(
            f"{path.name} was built by {_TITLES[product]} {version}; {ours} is installed",
            where=str(path),
            fix=f"build it again with {ours}, or install {version}",
        )


def _never_loads(product: str, theirs: tuple[int, ...], package: Package) -> bool:
    """Whether an engine of version `theirs` loads in no case; where it may, TensorRT's own reader decides.

    Engines load in the version that built them. Version-compatible ones, since 8.6, load in newer versions too, also of the next
    major (8 in 10, 10 in 11), and in no older one. Those of TensorRT-RTX load in none but their own. Source: "Engine
    Compatibility" in NVIDIA's documentation of 11.1, "Version Compatibility" of 10.16 and of TensorRT-RTX.
    """
    ours = package.numbers
    if product == "rtx":
        return theirs[:3] != ours[:3]
    return theirs[:2] != ours[:2] and (theirs[:2] < _FIRST_COMPATIBLE or theirs[0] > ours[0])
