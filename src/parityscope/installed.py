"""What is installed, and which machine -> which combinations are known to be bad; what a way to run computes in, as a record.

Pure: facts go in as plain data, sentences come out. `parityscope doctor` gathers the facts and prints the sentences; what each
runtime computes in is told by its own file (`backends`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.known_faults import RUNTIMES, faults_of
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

_AMPERE = (8, 0)  # the first compute capability with TF32: NVIDIA's CUDA Programming Guide
# Builds of ONNX Runtime that bring the same importable package.
_SAME_FOLDER = frozenset(
    {
        "onnxruntime",
        "onnxruntime-directml",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-qnn",
        "onnxruntime-rocm",
        "onnxruntime-training",
    }
)
_ONEDNN = "oneDNN's documentation, primitive attribute fpmath-mode"
# (variable, values, what they do, where that is told)
_LOWERING = (
    (
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        frozenset({"1"}),
        "PyTorch's products take TF32 by default",
        "PyTorch's source, ATen/Context.cpp",
    ),
    *(
        (name, frozenset({"bf16", "tf32", "any"}), "oneDNN computes FP32 products in less", _ONEDNN)
        for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
    ),
)
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


_UNSET = "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`versions` of packages by name, `features` of the CPU, `capability` of the first GPU, the driver's CUDA ("12.4").

    `backends` are those that can be used here, `variables` what the environment sets, `told` what a backend says of itself,
    `linked` the CUDA major that a package was built for.
    """

    versions: Mapping[str, str]
    features: frozenset[str] = frozenset()
    capability: tuple[int, int] | None = None
    driver_cuda: str = ""
    backends: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    told: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    linked: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """A way to run, as a target; what it computes in; why. `tf32` is "on", "off", or "none" where it does not exist."""

    target: str
    computes: str
    tf32: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A combination that is known to be bad: what happens, where that is told, and what to do."""

    problem: str
    source: str
    fix: str


def known_problems(machine: Machine) -> tuple[Known, ...]:
    """What is known to go wrong with what is installed here."""
    found = [
        *_two_onnxruntimes(machine),
        *_known_bugs(machine),
        *_too_new_for_driver(machine),
        *_lowered_by_variables(machine),
        *_override_without_effect(machine),
    ]
    return tuple(found)


def arithmetic_on_gpu(machine: Machine, target: str, computes: str, default: str) -> Arithmetic:
    """A way to run on the first GPU, whose own `default` for TF32 is told; Parityscope switches it off."""
    override = machine.variables.get(TF32_OVERRIDE, "")
    if machine.capability is not None and machine.capability < _AMPERE:
        return Arithmetic(target=target, computes=computes, tf32="none", because="this GPU has no TF32")
    if override == "0":
        why = f"{TF32_OVERRIDE}=0 switches it off, whatever a program asks for"
        return Arithmetic(target=target, computes=computes, tf32="off", because=why)
    why = f"Parityscope switches it off unless the target says otherwise; {default}"
    return Arithmetic(target=target, computes=computes, tf32="off", because=why)


def _two_onnxruntimes(machine: Machine) -> list[Known]:
    several = sorted(name for name in machine.versions if name in _SAME_FOLDER)
    if len(several) < 2:
        return []
    return [
        Known(
            problem=f"{' and '.join(several)} are installed together: they write into one folder, and the last one wins",
            source="ONNX Runtime's installation guide: only one of its packages at a time",
            fix=f"pip uninstall {' '.join(several)}, then install the one you want",
        )
    ]


def _known_bugs(machine: Machine) -> list[Known]:
    facts = {**machine.variables, "cpu features": " ".join(sorted(machine.features))}
    return [
        Known(
            problem=f"{RUNTIMES[runtime]} {version} {fault.symptom} (known of {fault.versions})",
            source=fault.source,
            fix=fault.workaround,
        )
        for runtime, version in _versions_of_runtimes(machine).items()
        for fault in faults_of(runtime, version, facts)
    ]


def _versions_of_runtimes(machine: Machine) -> dict[str, str]:
    """The version of each runtime that faults are known of, whichever of its packages is installed."""
    found = {}
    for name, version in machine.versions.items():
        if name in _SAME_FOLDER:
            found["onnxruntime"] = version
        elif name == "openvino":
            found["openvino"] = version
        elif name == "tensorrt" or name.startswith("tensorrt-cu"):
            found["tensorrt"] = version
    return found


def _too_new_for_driver(machine: Machine) -> list[Known]:
    driver = int(machine.driver_cuda.partition(".")[0] or 0)
    return [
        Known(
            problem=f"{name} was built for CUDA {major}, and the driver serves CUDA {machine.driver_cuda} at most",
            source="NVIDIA's CUDA Compatibility guide: a program's CUDA major may not be newer than the driver's",
            fix=f"update the driver, or install {name} for CUDA {driver}",
        )
        for name, major in sorted(machine.linked.items())
        if driver and major > driver
    ]


def _lowered_by_variables(machine: Machine) -> list[Known]:
    """Variables that make a library compute FP32 products in less, so that a reference is none."""
    found = []
    for name, values, does, source in _LOWERING:
        value = machine.variables.get(name, "").lower()
        if value in values:
            fix = f"unset {name} where a reference runs"
            found.append(Known(problem=f"{name}={value} is set: {does}", source=source, fix=fix))
    return found


def _override_without_effect(machine: Machine) -> list[Known]:
    value = machine.variables.get(TF32_OVERRIDE, _UNSET)
    if value in {"0", _UNSET}:
        return []
    return [
        Known(
            problem=f"{TF32_OVERRIDE} is {value!r}: only 0 is known, and TF32 is as each program asks for it",
            source='TensorRT-RTX 1.7: "NVIDIA_TF32_OVERRIDE set to unrecognized value" (measured)',
            fix=f"write {TF32_OVERRIDE}=0 to switch TF32 off, or unset it",
        )
    ]
