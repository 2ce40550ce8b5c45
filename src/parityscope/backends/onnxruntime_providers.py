"""The execution providers of a target of ONNX Runtime, with every switch that changes results set explicitly.

* `device=cuda`: TF32 by `tf32=`, off by default (`use_tf32`; ONNX Runtime's own default is on). `cudnn_conv_algo_search=` says
  how cuDNN chooses a convolution's algorithm: other algorithms sum in another order, and some take TF32.
* `device=tensorrt` (or `provider=tensorrt`): the TensorRT provider, and CUDA for what it leaves over. A precision is the
  builder's flag (`trt_fp16_enable`, `trt_bf16_enable`), which lets TensorRT choose; `provider_options=trt_dla_core:0` sets
  its other switches. It has no switch for TF32, and TensorRT's default is on: only NVIDIA_TF32_OVERRIDE=0, set before the
  process starts, switches it off. `device=tensorrt-rtx` is that of TensorRT-RTX, which takes types from the file.

Source: ONNX Runtime's documentation of its CUDA, TensorRT and TensorRT-RTX execution providers. NOT RUN: the TensorRT providers;
no machine with one was at hand.
"""

from __future__ import annotations

import ctypes
import difflib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import one_of
from parityscope.errors import ParityError
from parityscope.installed import TF32_OVERRIDE
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.records import Target

__all__ = [
    "ON_RTX",
    "ON_TENSORRT",
    "Providers",
    "check_loaded",
    "device_of",
    "missing_library",
    "one_of",
    "providers_of",
]

ON_TENSORRT, ON_RTX = "tensorrt", "tensorrt-rtx"
_CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_SEARCHES = {"exhaustive": "EXHAUSTIVE", "heuristic": "HEURISTIC", "default": "DEFAULT"}
_RTX = "NvTensorRTRTXExecutionProvider"
_FLAGS = {"f16": "trt_fp16_enable", "bf16": "trt_bf16_enable"}
# Switches that change what is computed, or how; paths of caches are left to the program that wants them.
_SWITCHES = {
    _TENSORRT: (
        *("trt_max_partition_iterations", "trt_min_subgraph_size", "trt_max_workspace_size", "trt_int8_enable"),
        *("trt_int8_use_native_calibration_table", "trt_dla_enable", "trt_dla_core", "trt_layer_norm_fp32_fallback"),
        *("trt_context_memory_sharing_enable", "trt_build_heuristics_enable", "trt_sparsity_enable"),
        *("trt_builder_optimization_level", "trt_auxiliary_streams", "trt_tactic_sources", "trt_cuda_graph_enable"),
        *("trt_profile_min_shapes", "trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_op_types_to_exclude"),
    ),
    _RTX: (
        *("nv_max_workspace_size", "nv_detailed_build_log", "nv_profile_min_shapes", "nv_profile_max_shapes"),
        *("nv_profile_opt_shapes", "nv_multi_profile_enable", "enable_cuda_graph"),
    ),
}
_MISSING = {
    _CUDA: "pip uninstall onnxruntime && pip install onnxruntime-gpu, on a machine with an NVIDIA GPU",
    _TENSORRT: "pip uninstall onnxruntime && pip install onnxruntime-gpu, on a machine with an NVIDIA GPU, and TensorRT's "
    "libraries of the version that it was built for on LD_LIBRARY_PATH (pip install tensorrt)",
    _RTX: "take a build of ONNX Runtime with it (onnxruntime-ep-nv-tensorrt-rtx, or built with --use_nv_tensorrt_rtx), on a "
    "machine with an RTX GPU; or trt?product=rtx, which is TensorRT-RTX itself",
}
_TITLES = {_CUDA: "CUDA", _TENSORRT: "TensorRT", _RTX: "TensorRT-RTX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Providers, first choice first; what there is to say of them; the device that IO binding keeps tensors on ("" for none)."""

    names: list[Any]  # a name, or a pair of a name and its settings, as ONNX Runtime takes them
    environment: dict[str, str]
    bound: str = ""


def device_of(target: Target) -> str:
    """The device that `device=` or `provider=` names.

    Raises:
        ParityError: they name two.
    """
    asked = target.option("device") or target.option("provider") or "cpu"
    if target.option("provider") not in {"", asked}:
        raise ParityError("provider= and device= say different things", fix="write one of them")
    return asked


def providers_of(target: Target) -> Providers:
    """The providers of `target`.

    Raises:
        ParityError: an option has no meaning on that device, or this ONNX Runtime lacks its provider.
    """
    import onnxruntime as ort

    environment = {"onnxruntime": ort.__version__, "machine": platform.machine()}
    asked = device_of(target)
    device, _, number = asked.partition(":")
    tf32 = one_of(target, "tf32", ("on", "off"), "off")
    search = one_of(target, "cudnn_conv_algo_search", tuple(_SEARCHES), "")
    bound = one_of(target, "io_binding", ("on", "off"), "off") == "on"
    if target.option("provider_options") and device not in {ON_TENSORRT, ON_RTX}:
        raise ParityError(f"provider_options= are those of TensorRT, and this is {device}", fix="add device=tensorrt")
    if device == "cpu":
        if tf32 == "on":
            raise ParityError("TF32 exists on CUDA devices only", fix="add device=cuda, or leave tf32 out")
        if search:
            raise ParityError("cuDNN is not used on a CPU", fix="add device=cuda, or leave cudnn_conv_algo_search out")
        return Providers(names=["CPUExecutionProvider"], environment=environment, bound="cpu:0" if bound else "")
    if device not in {"cuda", ON_TENSORRT, ON_RTX} or (number and not number.isdigit()):
        raise ParityError(f"ort has no device {asked!r}", fix="use cpu, cuda, cuda:1, tensorrt or tensorrt-rtx")
    first = {ON_TENSORRT: _TENSORRT, ON_RTX: _RTX}.get(device, _CUDA)
    switches = _parse_switches(target.option("provider_options"), first)
    _check_there(first, ort.get_available_providers())
    cuda = {"device_id": number or "0", "use_tf32": "1" if tf32 == "on" else "0"}
    if search:
        cuda["cudnn_conv_algo_search"] = _SEARCHES[search]
        environment["cudnn_conv_algo_search"] = search
    names: list[Any] = [(_CUDA, cuda), "CPUExecutionProvider"]
    if first != _CUDA:
        _check_tf32_of_tensorrt(tf32)
        if device == ON_RTX and target.precision in _FLAGS:
            raise ParityError(
                f"TensorRT-RTX takes types from the file, and has no flag for {target.precision}",
                fix="give a file that holds them (parityscope repair) with model=, and leave the precision out",
            )
        flags = {_FLAGS[target.precision]: "1"} if target.precision in _FLAGS else {}
        names.insert(0, (first, {"device_id": number or "0", **flags, **switches}))
        environment.update(switches)
    return Providers(
        names=names, environment={**environment, "tf32": tf32}, bound=f"cuda:{number or 0}" if bound else ""
    )


def check_loaded(asked: Sequence[Any], has: Sequence[str]) -> None:
    """Checks that a session has the providers that it was asked for.

    One whose libraries are missing (cuDNN or CUDA of another version) is left out with a line in the log, and the session runs on
    the CPU: a comparison of the GPU that never used it.

    Raises:
        ParityError: one is missing.
    """
    missing = [name for name in (one if isinstance(one, str) else one[0] for one in asked) if name not in has]
    if missing:
        why = missing_library(missing[0])
        raise ParityError(
            f"ONNX Runtime could not load {missing[0]} and would run on {', '.join(has)} instead{f': {why}' if why else ''}",
            fix="install the CUDA and cuDNN that this onnxruntime-gpu was built for (parityscope doctor), or put them on "
            "LD_LIBRARY_PATH",
        )


def missing_library(provider: str) -> str:
    """The library that a provider needs and the loader does not find, in its own words; empty where nothing is missing."""
    import onnxruntime as ort

    stem = {_CUDA: "cuda", _TENSORRT: "tensorrt", _RTX: "nv_tensorrt_rtx"}.get(provider, "")
    library = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{stem}.so"
    if not stem or not library.is_file():
        return ""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        # Symbols of ONNX Runtime itself are there when it loads the library, and are not now.
        return str(error) if "cannot open shared object file" in str(error) else ""
    return ""


def _parse_switches(text: str, provider: str) -> dict[str, str]:
    """`trt_min_subgraph_size:5,trt_dla_core:0` by name.

    Raises:
        ParityError: one is not of that form, or the provider has none of that name.
    """
    found: dict[str, str] = {}
    for item in text.split(",") if text else ():
        name, colon, value = item.partition(":")
        if not colon or name not in _SWITCHES[provider]:
            near = difflib.get_close_matches(name, _SWITCHES[provider], n=2) or _SWITCHES[provider][:2]
            precision = next((ours for ours, flag in _FLAGS.items() if flag == name and provider == _TENSORRT), "")
            raise ParityError(
                f"{item!r} is no switch of ONNX Runtime's {_TITLES[provider]} provider"
                + (" here: it is the target's precision" if precision else ""),
                fix=f"write ort:{precision}?provider=tensorrt" if precision else f"write {near[0]}:VALUE",
            )
        found[name] = value
    return found


def _check_there(name: str, available: Sequence[str]) -> None:
    if name not in available:
        raise ParityError(
            f"this onnxruntime has no {_TITLES[name]} provider (it has {', '.join(available)})", fix=_MISSING[name]
        )


def _check_tf32_of_tensorrt(tf32: str) -> None:
    """TF32 must be what the target says, also where the provider has no switch for it."""
    overridden = os.environ.get(TF32_OVERRIDE) == "0"
    if tf32 == "off" and not overridden:
        raise ParityError(
            "the TensorRT provider has no switch for TF32, and TensorRT's default is on",
            fix=f"write tf32=on, or set {TF32_OVERRIDE}=0 before starting",
        )
    if tf32 == "on" and overridden:
        raise ParityError(f"{TF32_OVERRIDE}=0 switches TF32 off", fix=f"unset {TF32_OVERRIDE}, or write tf32=off")
