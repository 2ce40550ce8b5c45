"""What is asked of TensorRT: the options of a target as one record, each checked against what the installed version has.

* `tf32=on` or `off`: whether products may round to TF32; off unless it is on, whatever the tools' defaults are;
* `typing=strong` (9 and newer): the file's types are those of the engine; `weak` (up to 10): the builder may choose;
* `:f16`, `:bf16`, `:int8`, `:f8e4m3` (up to 10): the builder's flag of that name; it may then use that type;
* `layers=NAME:f32,...` (up to 10): the type of nodes, by name or pattern (`*`); the last that fits wins;
* `constraints=obey` or `prefer` (up to 10): what `layers` means; obey is an error where it cannot be met;
* `timing_cache=FILE` (all but RTX): measured kernels, read and written;
* `plugins=A.so,B.so`: libraries that are loaded before the model is parsed or the engine is read;
* `version_compatible=on` (8.6, with the lean runtime; not RTX): an engine that newer versions run too;
* `hardware=ampere_plus` (8.6) or `same_cc` (10.9): an engine for other GPUs than this one; RTX has `capability=8.9,12.0`;
* `build_route=...` (11.1 on Linux): the compiler's knobs, as `trtexec --setBuildRoute` takes them;
* `level=0` to `5`: the builder's optimization level;
* `workspace=4GiB`: the most memory that a kernel may take (`trtexec --memPoolSize=workspace:4096`);
* `tactics=-CUDNN,+CUBLAS` (not RTX): libraries that kernels may come from, as `trtexec --tacticSources` takes them;
* `dla=0` (not RTX): the DLA core that layers go to; `fallback=off` refuses layers that it does not have instead of running
  them on the GPU;
* `device=1`: the GPU, as `trtexec --device` numbers it;
* `refit=on`: an engine whose weights can be replaced; of one that exists (10.0) they are replaced by the model's;
* `shapes=`, `fix=`, `settle=on`: see `profiles.py` and `settling.py`.

Source: NVIDIA's Python API reference of 8.6, 10.13 and 11.4, and "Migrating from TensorRT 10.x to 11.x".
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from parityscope.backends.tensorrt.profiles import ShapeRange, ranges_of
from parityscope.backends.tensorrt.settling import value_of
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from parityscope.backends.tensorrt.packages import Package
    from parityscope.records import Target

# Our names of formats -> BuilderFlag of TensorRT 8.6 to 10.
WEAK_FLAGS = MappingProxyType({"f16": "FP16", "bf16": "BF16", "int8": "INT8", "f8e4m3": "FP8"})
_LAYER_TYPES = ("f32", "f16", "bf16", "int8")
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
_LEVELS = 6  # NVIDIA documents 0 to 5
_TYPED = (
    "write the types into the model: parityscope repair MODEL --candidate TARGET --inputs DATA -o typed.onnx keeps what must "
    "stay FP32 in FP32; then give model=typed.onnx"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtOptions:
    """How a network is to be built; see the module. `values` are inputs that become constants, `settle` folds the rest."""

    shapes: Mapping[str, ShapeRange] = field(default_factory=lambda: MappingProxyType({}))
    values: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    settle: bool = False
    tf32: bool = False
    precision: str = ""
    typing: Literal["strong", "weak"] = "strong"
    layers: tuple[tuple[str, str], ...] = ()
    constraints: str = ""
    timing_cache: Path | None = None
    plugins: tuple[Path, ...] = ()
    version_compatible: bool = False
    hardware: str = ""
    capabilities: tuple[int, ...] = ()
    build_route: str = ""
    level: int | None = None
    workspace: int = 0
    tactics: tuple[tuple[str, bool], ...] = ()
    dla: int | None = None
    fallback: bool = True
    device: int = 0
    refit: bool = False


def options_of(target: Target, package: Package) -> TensorrtOptions:
    """The options of `target`, for `package`.

    Raises:
        ParityError: one is not of its form, or this version has no such thing.
    """
    _check_words(target)
    precision, layers = target.precision, _parse_layer_types(target.option("layers"))
    typing = _choose_typing(target, package)
    _check_weak(target, package, typing)
    values = _parse_fixed_values(target.option("fix"))
    found = TensorrtOptions(
        shapes=ranges_of(target.option("shapes")),
        values=values,
        settle=bool(values) or target.option("settle") == "on",
        tf32=target.option("tf32") == "on",
        precision="" if precision == "f32" else precision,
        typing=typing,
        layers=layers,
        constraints=target.option("constraints") or ("obey" if layers else ""),
        timing_cache=_option_path(target, "timing_cache"),
        plugins=tuple(Path(item) for item in target.option("plugins").split(",") if item),
        version_compatible=target.option("version_compatible") == "on",
        hardware=target.option("hardware"),
        capabilities=_parse_capabilities(target.option("capability")),
        build_route=target.option("build_route"),
        level=_parse_level(target.option("level")),
        workspace=_parse_workspace(target.option("workspace")),
        tactics=_parse_tactics(target.option("tactics")),
        dla=_parse_device_number(target, "dla"),
        fallback=target.option("fallback") != "off",
        device=_parse_device_number(target, "device") or 0,
        refit=target.option("refit") == "on",
    )
    _check_version(found, package)
    return found


def _check_words(target: Target) -> None:
    known = {
        "tf32": ("on", "off"),
        "typing": ("strong", "weak"),
        "settle": ("on", "off"),
        "constraints": ("obey", "prefer"),
        "version_compatible": ("on", "off"),
        "hardware": ("ampere_plus", "same_cc"),
        "build": ("only",),
        "observe": ("unfused", "debug", "outputs", "all"),
        "cache": ("on", "off"),
        "narrow": ("on", "off"),
        "fallback": ("on", "off"),
        "refit": ("on", "off"),
    }
    for name, values in known.items():
        if (given := target.option(name)) and given not in values:
            raise ParityError(f"{name}={given!r} is not known", fix=f"use {name}={'|'.join(values)}")


def _choose_typing(target: Target, package: Package) -> Literal["strong", "weak"]:
    asked = target.option("typing")
    wants_weak = any((target.precision not in {"", "f32"}, target.option("layers"), target.option("constraints")))
    if asked == "strong" and wants_weak and package.weakly_typed:
        raise ParityError(
            "a precision, layers= or constraints= is a wish to a weakly typed build, and typing=strong leaves none",
            fix="leave one of them out",
        )
    if asked == "strong" and not package.strongly_typed:
        raise ParityError(
            f"{package.title} {package.version} has no strong typing (9 is the first)", fix="use typing=weak"
        )
    return "weak" if asked == "weak" or wants_weak or not package.strongly_typed else "strong"


def _check_weak(target: Target, package: Package, typing: str) -> None:
    if typing == "strong" or package.weakly_typed:
        return
    if target.precision not in {"", "f32"}:
        asked = f":{target.precision}"
    else:
        asked = next((f"{name}=" for name in ("layers", "constraints", "typing") if target.option(name)), "typing=weak")
    raise ParityError(
        f"{package.title} {package.version} is always strongly typed and has no precision flags, layer precisions or "
        f"constraints: {asked} cannot be asked for, types are those of the ONNX graph",
        fix=_TYPED,
    )


def _check_version(options: TensorrtOptions, package: Package) -> None:
    flags = package.module.BuilderFlag
    if options.precision and not hasattr(flags, WEAK_FLAGS[options.precision]):
        raise ParityError(f"{package.title} {package.version} has no {options.precision}", fix="use f16")
    lacking = [kind for _, kind in options.layers if kind in WEAK_FLAGS and not hasattr(flags, WEAK_FLAGS[kind])]
    if lacking:
        raise ParityError(f"{package.title} {package.version} has no {lacking[0]}", fix="use f16 in layers=")
    if options.tf32 and os.environ.get(_OVERRIDE) == "0":
        raise ParityError(
            f"{_OVERRIDE}=0 switches TF32 off in all of NVIDIA's libraries",
            fix=f"unset {_OVERRIDE}, or leave tf32=on out",
        )
    if options.version_compatible and package.product == "rtx":
        raise ParityError(
            "TensorRT-RTX has no version-compatible engines: each release reads its own only",
            fix="leave version_compatible=on out, and build again with the release that runs the engine",
        )
    if options.timing_cache and package.product == "rtx":
        raise ParityError(
            "TensorRT-RTX keeps no timing cache: it chooses kernels when an engine first runs",
            fix="leave timing_cache= out",
        )
    if options.capabilities and package.product != "rtx":
        raise ParityError(
            "capability= is TensorRT-RTX's; TensorRT builds for the GPU that it finds", fix="use hardware=ampere_plus"
        )
    if options.hardware and package.product == "rtx":
        raise ParityError(
            "TensorRT-RTX has no hardware compatibility levels", fix="name the GPUs instead: capability=8.9,12.0"
        )
    if options.dla is not None and package.product == "rtx":
        raise ParityError("TensorRT-RTX runs on GPUs alone and has no DLA", fix="leave dla= out")
    _check_tactics(options, package)
    levels = package.module.HardwareCompatibilityLevel
    if options.hardware == "same_cc" and not hasattr(levels, "SAME_COMPUTE_CAPABILITY"):
        raise ParityError(
            f"{package.title} {package.version} has no same_cc (10.9 is the first)", fix="use ampere_plus"
        )


def _parse_layer_types(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for item in text.split(",") if text else ():
        name, _, precision = item.rpartition(":")
        if not name or precision not in _LAYER_TYPES:
            raise ParityError(
                f"layers={item!r} is not NAME:TYPE",
                fix=f"write layers=/decoder/*:f32; types are {', '.join(_LAYER_TYPES)}",
            )
        found.append((name, precision))
    return tuple(found)


def _parse_fixed_values(text: str) -> dict[str, np.ndarray]:
    """`sr:16000,lengths:1,2,3` by input; a part without a name goes on with the list before it."""
    joined: list[str] = []
    for part in text.split(",") if text else ():
        if ":" in part or not joined:
            joined.append(part)
        else:
            joined[-1] += f",{part}"
    found = {}
    for item in joined:
        name, colon, value = item.rpartition(":")
        if not (name and colon):
            raise ParityError(f"fix={item!r} is not NAME:VALUE", fix="write fix=sr:16000")
        found[name] = value_of(value, name)
    return found


def _parse_capabilities(text: str) -> tuple[int, ...]:
    """`8.9,12.0` as (89, 120)."""
    parts = [item for item in text.split(",") if item]
    if any(re.fullmatch(r"\d+\.\d", item) is None for item in parts):
        raise ParityError(f"capability={text!r} is not MAJOR.MINOR", fix="write capability=8.9,12.0")
    return tuple(int(item.replace(".", "")) for item in parts)


def _parse_level(text: str) -> int | None:
    if text and (not text.isdigit() or int(text) >= _LEVELS):
        raise ParityError(
            f"level={text!r} is no optimization level", fix="use level=0 to level=5 (TensorRT's own is 3)"
        )
    return int(text) if text else None


def _option_path(target: Target, name: str) -> Path | None:
    text = target.option(name)
    return Path(text) if text else None


def _parse_workspace(text: str) -> int:
    """`4GiB` or `512MiB` in bytes; a plain number is MiB, as trtexec takes it. 0 leaves TensorRT's own limit."""
    if not text:
        return 0
    match = re.fullmatch(r"(\d{1,9})(MiB|GiB)?", text)
    if match is None or not int(match[1]):
        raise ParityError(f"workspace={text!r} is no size", fix="write workspace=4GiB or workspace=512MiB")
    return int(match[1]) << (30 if match[2] == "GiB" else 20)


def _parse_tactics(text: str) -> tuple[tuple[str, bool], ...]:
    """`-CUDNN,+CUBLAS` as (library, allowed)."""
    found = []
    for item in text.split(",") if text else ():
        if len(item) < 2 or item[0] not in "+-":
            raise ParityError(f"tactics={item!r} is not +NAME or -NAME", fix="write tactics=-CUDNN,+CUBLAS")
        found.append((item[1:].upper(), item[0] == "+"))
    return tuple(found)


def _check_tactics(options: TensorrtOptions, package: Package) -> None:
    if not options.tactics:
        return
    known = getattr(getattr(package.module, "TacticSource", None), "__members__", {})
    if package.product == "rtx" or not known:
        raise ParityError(
            f"{package.title} {package.version} has no choice of tactic sources", fix="leave tactics= out"
        )
    if unknown := [name for name, _ in options.tactics if name not in known]:
        raise ParityError(
            f"{package.title} {package.version} has no tactic source {unknown[0]}",
            fix=f"use some of {', '.join(known)}",
        )


def _parse_device_number(target: Target, name: str) -> int | None:
    text = target.option(name)
    if text and (not text.isdigit() or len(text) > 3):
        raise ParityError(f"{name}={text!r} is no number of a device", fix=f"write {name}=0")
    return int(text) if text else None
