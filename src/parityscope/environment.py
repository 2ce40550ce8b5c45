"""What two sides' machines and runtimes say of themselves -> how they differ, and why that may matter.

Facts are plain text by key. A difference is a covariate: it stands beside every other difference, and only a run in which it
alone is changed makes a cause of it. What contradicts itself within one side (a library that was linked in one version and
loaded in another, two copies of it at once) is told as a conflict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from parityscope.light_dataclasses import dataclass

# Facts by key, and what a difference in them may do to results. Keys that are not listed (paths, times, a recording's name)
# are no part of a comparison.
MATTERS: Mapping[str, str] = {
    "gpu": "kernels are chosen by GPU, and TF32 exists from compute capability 8.0 on",
    "compute capability": "kernels are chosen by it, and each has formats of its own",
    "mig": "a part of a GPU has fewer multiprocessors, and sums are split by their number",
    "persistence mode": "it changes times, and a builder takes the kernels that it measures as fastest",
    "plug-ins": "another library computes another function",
    "driver": "the driver compiles kernels and brings its own CUDA",
    "cuda": "libraries of another CUDA have other kernels",
    "tensorrt": "an engine is optimized by the version that built it",
    "cudnn": "convolution algorithms, and whether they take TF32, change between versions",
    "cublas": "products' kernels and their accumulation change between versions",
    "onnxruntime": "its optimizer fuses other operators in other versions",
    "openvino": "its plug-ins choose other kernels and precisions in other versions",
    "torch": "its defaults for TF32 have changed between versions",
    "cpu": "kernels are chosen by CPU",
    "cpu features": "bfloat16 is the default of some runtimes where AVX512-BF16 or AMX exist; without FMA sums round more often",
    "machine": "another instruction set has other kernels",
    "threads": "sums are split by threads, and then add up in another order",
    "OMP_NUM_THREADS": "sums are split by threads, and then add up in another order",
    "tf32": "TF32 rounds the operands of products to 11 bits",
    "NVIDIA_TF32_OVERRIDE": "0 switches TF32 off in all of NVIDIA's libraries, whatever a program asks for",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1 switches TF32 on for PyTorch's products",
    "ONEDNN_DEFAULT_FPMATH_MODE": "bf16 or any lets oneDNN compute FP32 products in bfloat16",
    "DNNL_DEFAULT_FPMATH_MODE": "bf16 or any lets oneDNN compute FP32 products in bfloat16",
    "CUBLAS_WORKSPACE_CONFIG": "without it cuBLAS may give another sum from run to run",
    "MKL_CBWR": "it fixes the order of MKL's sums",
    "subnormals": "flushed to zero by one side: numbers below 1.2e-38 vanish there",
    "executed precision": "one side computes in another precision",
}

_NONE: Mapping[str, str] = MappingProxyType({})
# Facts that are versions, told with the product's name ("tensorrt 10.13.0.35") or without, to the third number or to the fourth.
_VERSIONS = frozenset({"tensorrt", "cuda", "driver", "cudnn", "cublas", "onnxruntime", "openvino", "torch"})
_VERSION = re.compile(r"(?:([A-Za-z][\w.-]*?)[ -])?v?(\d+(?:\.\d+)*)(.*)")
_SAME_LIBRARY = re.compile(r"^(linked|loaded) (lib[\w+-]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDifference:
    """One fact that is not the same on both sides ("" where a side does not tell it), and why it may matter."""

    key: str
    reference: str
    candidate: str
    matters: str


def list_differences(reference: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[EnvironmentDifference, ...]:
    """What both sides tell and tell differently, in the order of `MATTERS`.

    A fact that only one side tells is no difference: the reference has no engine, and a recording knows little of itself.
    """
    return tuple(
        EnvironmentDifference(key=key, reference=reference[key], candidate=candidate[key], matters=matters)
        for key, matters in MATTERS.items()
        if key in reference and key in candidate and not _is_same_fact(key, reference[key], candidate[key])
    )


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers of a version's text: those of "tensorrt 10.13.0.35" are (10, 13, 0, 35), of "2026.4.1-229" (2026, 4, 1)."""
    match = _VERSION.fullmatch(version.strip())
    return tuple(int(part) for part in match[2].split(".")) if match else ()


def _is_same_fact(key: str, one: str, other: str) -> bool:
    """Whether two facts say the same; versions do as far as both tell: the product's name, the numbers, what follows them."""
    if one == other or key not in _VERSIONS:
        return one == other
    first, second = (_VERSION.fullmatch(text.strip()) for text in (one, other))
    if first is None or second is None:
        return False
    products, rests = (
        {(found[part] or "").casefold().replace("-", "_") for found in (first, second)} for part in (1, 3)
    )
    numbers = numbers_of(one), numbers_of(other)
    told = min(map(len, numbers))
    return numbers[0][:told] == numbers[1][:told] and len(products - {""}) < 2 and len(rests - {""}) < 2


def list_conflicts(facts: Mapping[str, str]) -> tuple[str, ...]:
    """What contradicts itself on one side, in sentences.

    "linked libcudnn" and "loaded libcudnn" hold versions ("9", "9.1.0"), the latter several, separated by commas, where
    several copies are loaded. A linked version is the beginning of the loaded one, or it was not what was linked.
    """
    told = []
    libraries = sorted({match[2] for key in facts if (match := _SAME_LIBRARY.match(key))})
    for library in libraries:
        loaded = [part.strip() for part in facts.get(f"loaded {library}", "").split(",") if part.strip()]
        linked = facts.get(f"linked {library}", "")
        if len(set(loaded)) > 1:
            told.append(f"{library} is loaded in {len(set(loaded))} versions at once: {', '.join(sorted(set(loaded)))}")
        told.extend(
            f"{library} was linked as version {linked} and loaded as {version}"
            for version in loaded
            if linked and version.split(".")[: len(linked.split("."))] != linked.split(".")
        )
    return tuple(told)


def facts_of(document: Mapping[str, Any], packages: Mapping[str, str] = _NONE) -> dict[str, str]:
    """The facts that a JSON document tells: `parityscope doctor --format json`, a study's side, or plain facts by key.

    `packages` are what brings each runtime, by the runtime's name, where that is another: its version is a fact of the package.
    """
    if not isinstance(document, Mapping):
        raise TypeError("no object")
    if "backends" in document and "cpu" in document:
        found = {key: str(value) for key, value in dict(document.get("facts", {})).items()}
        for name, state in dict(document["backends"]).items():
            if isinstance(state, dict) and state.get("version"):
                found.setdefault(packages.get(name, name), str(state["version"]))
        return found
    if "candidate" in document and "schema" in document:
        own = dict(document["candidate"]).get("environment", {})
        return {key: str(value) for key, value in {**dict(document.get("environment", {})), **own}.items()}
    return {key: str(value) for key, value in document.items() if isinstance(value, str | int | float)}
