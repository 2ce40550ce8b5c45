"""An engine's bytes -> TensorRT's engine, or one error that says why not and what to do.

TensorRT gives None and writes its reason to the log. Each reason that users meet has a sentence of its own here; the words of
the others are passed on. Truncation and other files were seen with TensorRT-RTX 1.7, whose reader checks a file before it
looks for a GPU; lines about versions, GPUs and plugins are quoted in public issues of TensorRT (2041, 2177, 1913 and 955). What
TensorRT "expects" is what is here, what it "got" is the engine's: a file of 6.1 on a GPU of 7.5 reads "expecting compute 7.5 got
compute 6.1" (onnxruntime issue 15250), any file in TensorRT 5.1.5 "expecting library version 5.1.5" (TensorRT issue 574).

What the first bytes of an engine tell, without loading it: product, version, and whether it is whole.

* bytes 0 to 3: `ftrt` (TensorRT from 8 on), `ptrt` (before) or `vtrt` (TensorRT-RTX);
* bytes 16 to 23: the length of the whole file, little-endian (seen in engines of TensorRT-RTX 1.7);
* bytes 24 to 27: major, minor, patch and build of the version. Source: printPlanVersion in trtexec's sampleEngines.cpp
  (--getPlanVersionOnly, 9 and newer); engines of TensorRT-RTX 1.7 have theirs in the same place.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.logger import logging_to
from parityscope.backends.tensorrt.plugins import load_plugins, register_standard_plugins
from parityscope.backends.tensorrt.reasons import NO_PLUGIN
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from parityscope.backends.tensorrt.api import Runtime
    from parityscope.backends.tensorrt.packages import Package

_HEADER = 28
_FIRST_COMPATIBLE = (8, 6)
_PRODUCTS = {b"ftrt": "tensorrt", b"ptrt": "tensorrt", b"vtrt": "rtx"}
_TITLES = {"tensorrt": "TensorRT", "rtx": "TensorRT-RTX"}
_AGAIN = "build it again with the TensorRT and on the GPU that run it"
# (what the log says, what that means, what to do); the first that fits is told.
_REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"header\.size == blobSize|cursor [<+].*blobSize|kEND_OF_PLAN_MARKER|[Tt]runcated",
        "the engine is truncated or was damaged on the way",
        "copy it again and compare its checksum, or build it again",
    ),
    (
        r"[Mm]agic ?[Tt]ag|empty memory buffer|does not conform to the expected format",
        "the file is no engine of this TensorRT",
        "give the file that trtexec --saveEngine wrote (a .plan or .engine), or leave engine= out to build one",
    ),
    (
        r"expecting library version ([\d.]+) got 0\.0\.0",
        "the engine's beginning tells no version: it was damaged, or written as text",
        "write it in binary (open(path, 'wb')) and copy it again",
    ),
    (
        r"expecting library version ([\d.]+) got (\d[\d.]*\d)",
        "the engine was built by version {1}; {0} is installed",
        "build it again with the installed version, or build version-compatible engines (version_compatible=on)",
    ),
    (
        r"expecting library version ([\d.]+)",
        "the engine was built by another version; {0} is installed",
        "build it again with the installed version, or build version-compatible engines (version_compatible=on)",
    ),
    (
        # Its version stands in the line as bytes that are no digits.
        r"has been created with TensorRT-RTX version",
        "the engine was built by another version of TensorRT-RTX",
        "build it again with the installed version",
    ),
    (
        r"kSERIALIZATION_VERSION|serialization version|[Vv]ersion tag does not match",
        "the engine was built by another version of TensorRT",
        "build it again with the installed version, or build version-compatible engines (version_compatible=on)",
    ),
    (
        r"expecting compute (\S+) got compute (\d[\d.]*\d)",
        "the engine was built for a GPU of compute capability {1}, this one has {0}",
        "build it on this kind of GPU, or for others too (hardware=ampere_plus; capability=8.9,12.0 with TensorRT-RTX)",
    ),
    (
        r"incompatible device|does not support the current compute capability|[Uu]nsupported (?:SM|compute)",
        "the engine was built for another GPU",
        "build it on this kind of GPU, or for others too (hardware=ampere_plus; capability=8.9,12.0 with TensorRT-RTX)",
    ),
    (
        r"hardware-compatible engine.*Expected compute capability >=\s*([\d.]+)?",
        "the engine was built for newer GPUs than this one",
        "build it on this kind of GPU",
    ),
    (
        r"getEngineHostCodeAllowed\(\) is false",
        "the engine is version-compatible: it carries a runtime of its own, which is code that would be run",
        "add version_compatible=on to the target if you trust the file",
    ),
    (
        NO_PLUGIN,
        "the engine needs a plugin that is not loaded{plugin}",
        "name its library: plugins=libmyplugin.so",
    ),
    (
        r"[Oo]ut ?[Oo]f ?[Mm]emory|bad_alloc|insufficient (?:GPU )?memory",
        "there is not enough memory for the engine",
        "free memory of the GPU",
    ),
)
_CUDA = re.compile(r"Cuda Runtime|cudaError|CUDA initialization failure")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """An engine and the runtime that must outlive it; `words` is what TensorRT said, `missing_cuda` why nothing can run."""

    runtime: Any
    engine: Any
    words: tuple[str, ...]
    missing_cuda: str = ""


def load_engine(
    content: bytes, package: Package, plugins: Sequence[Path], *, where: str, carries_code: bool = False
) -> LoadedEngine:
    """Reads an engine. Without a usable GPU `engine` is None and `missing_cuda` holds TensorRT's words.

    `carries_code` lets a version-compatible engine bring its own runtime, which TensorRT refuses unless it is told to.

    Raises:
        ParityError: TensorRT refuses the engine for another reason, or a plugin library cannot be loaded.
    """
    said = io.StringIO()
    with logging_to(package.module, said) as logger:
        runtime: Runtime = package.module.Runtime(logger)
        if carries_code:
            runtime.engine_host_code_allowed = True
        register_standard_plugins(package.module, logger)
        load_plugins(runtime.get_plugin_registry(), plugins)
        if hasattr(runtime, "get_engine_validity") and content:
            # TensorRT-RTX says of an engine's header what its reader keeps to itself: its version.
            runtime.get_engine_validity(content)
        checked = len(said.getvalue().split("\n"))
        engine = runtime.deserialize_cuda_engine(content)
    words = tuple(said.getvalue().split("\n"))
    if engine is not None:
        return LoadedEngine(runtime=runtime, engine=engine, words=words)
    errors = [line.partition("[E] ")[2] for line in words if "[E] " in line]
    errors += [line.partition("] ")[2] for line in words[:checked]]
    problem, fix = reason_of(errors)
    if problem:
        raise ParityError(problem, where=where, fix=fix)
    cuda = next((line for line in errors if _CUDA.search(line)), "")
    if cuda:
        return LoadedEngine(runtime=runtime, engine=None, words=words, missing_cuda=cuda)
    raise ParityError(
        f"TensorRT refuses the engine: {errors[0] if errors else 'it does not say why'}", where=where, fix=_AGAIN
    )


def reason_of(errors: Sequence[str]) -> tuple[str, str]:
    """(problem, fix) of the first of TensorRT's error lines whose reason is known; ("", "") if none is."""
    for line in errors:
        for pattern, means, fix in _REASONS:
            if match := re.search(pattern, line):
                groups = [group or "" for group in match.groups()]
                plugin = f": {groups[0]} {groups[1]}" if len(groups) > 1 and groups[0] else ""
                return means.format(*groups, plugin=plugin), fix
    return "", ""


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
