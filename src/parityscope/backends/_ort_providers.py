"""The execution providers of a target of ONNX Runtime, with every switch that changes results set explicitly.

* `device=cuda`: TF32 by `tf32=`, off by default (`use_tf32`; ONNX Runtime's own default is on). `cudnn_conv_algo_search=` says
  how cuDNN chooses a convolution's algorithm: other algorithms sum in another order, and some take TF32.
* `device=tensorrt`: the TensorRT provider, and CUDA for what it leaves over. A precision is the builder's flag
  (`trt_fp16_enable`, `trt_bf16_enable`), which lets TensorRT choose. It has no switch for TF32, and TensorRT's default is on:
  only NVIDIA_TF32_OVERRIDE=0, set before the process starts, switches it off.

Source: ONNX Runtime's documentation of its CUDA and TensorRT execution providers. NOT RUN: the TensorRT provider; no machine with
it was at hand.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import one_of
from parityscope.errors import ParityError
from parityscope.installed import TF32_OVERRIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.records import Target

__all__ = ["ON_TENSORRT", "Providers", "check_loaded", "one_of", "providers_of", "unloadable"]

ON_TENSORRT = "tensorrt"
_CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_SEARCHES = {"exhaustive": "EXHAUSTIVE", "heuristic": "HEURISTIC", "default": "DEFAULT"}
_FLAGS = {"f16": "trt_fp16_enable", "bf16": "trt_bf16_enable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """Providers, first choice first; what there is to say of them; the device that IO binding keeps tensors on ("" for none)."""

    names: list[Any]  # a name, or a pair of a name and its settings, as ONNX Runtime takes them
    environment: dict[str, str]
    bound: str = ""


def providers_of(target: Target) -> Providers:
    """The providers of `target`.

    Raises:
        ParityError: an option has no meaning on that device, or this ONNX Runtime lacks its provider.
    """
    import onnxruntime as ort

    environment = {"onnxruntime": ort.__version__, "machine": platform.machine()}
    device, _, number = target.option("device", "cpu").partition(":")
    tf32 = one_of(target, "tf32", ("on", "off"), "off")
    search = one_of(target, "cudnn_conv_algo_search", tuple(_SEARCHES), "")
    bound = one_of(target, "io_binding", ("on", "off"), "off") == "on"
    if device == "cpu":
        if tf32 == "on":
            raise ParityError("TF32 exists on CUDA devices only", fix="add device=cuda, or leave tf32 out")
        if search:
            raise ParityError("cuDNN is not used on a CPU", fix="add device=cuda, or leave cudnn_conv_algo_search out")
        return Providers(names=["CPUExecutionProvider"], environment=environment, bound="cpu:0" if bound else "")
    if device not in {"cuda", ON_TENSORRT} or (number and not number.isdigit()):
        raise ParityError(f"ort has no device {target.option('device')!r}", fix="use cpu, cuda, cuda:1 or tensorrt")
    _check_there(_TENSORRT if device == ON_TENSORRT else _CUDA, ort.get_available_providers())
    cuda = {"device_id": number or "0", "use_tf32": "1" if tf32 == "on" else "0"}
    if search:
        cuda["cudnn_conv_algo_search"] = _SEARCHES[search]
        environment["cudnn_conv_algo_search"] = search
    names: list[Any] = [(_CUDA, cuda), "CPUExecutionProvider"]
    if device == ON_TENSORRT:
        _check_tf32_of_tensorrt(tf32)
        flags = {_FLAGS[target.precision]: "1"} if target.precision in _FLAGS else {}
        names.insert(0, (_TENSORRT, {"device_id": number or "0", **flags}))
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
        why = unloadable(missing[0])
        raise ParityError(
            f"ONNX Runtime could not load {missing[0]} and would run on {', '.join(has)} instead{f': {why}' if why else ''}",
            fix="install the CUDA and cuDNN that this onnxruntime-gpu was built for (parityscope doctor), or put them on "
            "LD_LIBRARY_PATH",
        )


def unloadable(provider: str) -> str:
    """The library that a provider needs and the loader does not find, in its own words; empty where nothing is missing."""
    import onnxruntime as ort

    stem = {_CUDA: "cuda", _TENSORRT: "tensorrt"}.get(provider, "")
    library = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{stem}.so"
    if not stem or not library.is_file():
        return ""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        # Symbols of ONNX Runtime itself are there when it loads the library, and are not now.
        return str(error) if "cannot open shared object file" in str(error) else ""
    return ""


def _check_there(name: str, available: Sequence[str]) -> None:
    if name in available:
        return
    wanted = "CUDA" if name == _CUDA else "TensorRT"
    raise ParityError(
        f"this onnxruntime has no {wanted} provider (it has {', '.join(available)})",
        fix="pip uninstall onnxruntime && pip install onnxruntime-gpu, on a machine with an NVIDIA GPU",
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
