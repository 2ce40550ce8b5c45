"""The builder's configuration from the options: flags, profile, timing cache, compatibility, and the compiler's knobs."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.options import WEAK_FLAGS
from parityscope.backends.tensorrt.profiles import add_profile
from parityscope.errors import ParityError
from parityscope.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.tensorrt.api import Builder, BuilderConfig
    from parityscope.backends.tensorrt.layers import NetworkTensor
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import Package

_CONSTRAINTS = {"obey": "OBEY_PRECISION_CONSTRAINTS", "prefer": "PREFER_PRECISION_CONSTRAINTS"}
_HARDWARE = {"ampere_plus": "AMPERE_PLUS", "same_cc": "SAME_COMPUTE_CAPABILITY"}


def network_flags(options: TensorrtOptions, package: Package) -> int:
    """The flags that a network is made with: strongly typed, and with explicit batch where that is still a flag."""
    flags = package.module.NetworkDefinitionCreationFlag
    wanted = 0
    if options.typing == "strong" and hasattr(flags, "STRONGLY_TYPED"):
        wanted |= 1 << int(flags.STRONGLY_TYPED)
    if package.numbers[0] < 10 and hasattr(flags, "EXPLICIT_BATCH"):
        wanted |= 1 << int(flags.EXPLICIT_BATCH)
    return wanted


def configure_builder(
    builder: Builder, inputs: Sequence[NetworkTensor], options: TensorrtOptions, package: Package
) -> BuilderConfig:
    """The configuration for a network with these inputs.

    Raises:
        ParityError: a dynamic input has no shape, the timing cache is another GPU's or version's, or there is no such knob.
    """
    trt = package.module
    config: BuilderConfig = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    # Always said: TensorRT and trtexec have it on by default, Polygraphy off.
    (config.set_flag if options.tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    if options.precision:
        config.set_flag(getattr(trt.BuilderFlag, WEAK_FLAGS[options.precision]))
    if options.typing == "weak":
        for _, precision in options.layers:
            if precision in WEAK_FLAGS:  # a layer may only be asked for a type that the builder may use
                config.set_flag(getattr(trt.BuilderFlag, WEAK_FLAGS[precision]))
        if options.constraints:
            config.set_flag(getattr(trt.BuilderFlag, _CONSTRAINTS[options.constraints]))
    if options.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if options.refit:
        config.set_flag(trt.BuilderFlag.REFIT)
    if options.hardware:
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, _HARDWARE[options.hardware])
    if options.level is not None:
        config.builder_optimization_level = options.level
    if options.workspace:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace)
    _set_devices(config, options, trt)
    _set_capabilities(config, options, package)
    set_route(config, options, package)
    set_timing_cache(config, options)
    add_profile(builder, config, inputs, options.shapes)
    return config


def _set_devices(config: Any, options: TensorrtOptions, trt: Any) -> None:
    """The DLA core, and the libraries that kernels may come from."""
    if options.dla is not None:
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = options.dla
        if options.fallback:
            config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
    if options.tactics:
        sources = config.get_tactic_sources()
        for name, allowed in options.tactics:
            bit = 1 << int(trt.TacticSource.__members__[name])
            sources = sources | bit if allowed else sources & ~bit
        config.set_tactic_sources(sources)


def keep_timing_cache(config: BuilderConfig, options: TensorrtOptions) -> None:
    """Writes what was measured during a build back to the file that the options name."""
    if options.timing_cache is None:
        return
    # Another process that builds at the same time must not read half a file.
    write_whole(options.timing_cache, bytes(memoryview(config.get_timing_cache().serialize())))


def set_timing_cache(config: BuilderConfig, options: TensorrtOptions) -> None:
    """Gives the builder the file of times that the options name, if they name one."""
    path = options.timing_cache
    if path is None:
        return
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix="make it, or name another file")
    held = path.read_bytes() if path.exists() else b""
    cache = config.create_timing_cache(held)
    # TensorRT gives an empty cache for what it cannot read, with no more than a warning; the file would then be written over.
    lost = (
        held
        and cache is not None
        and _cache_size(cache) < len(held)
        and _cache_size(cache) <= _cache_size(config.create_timing_cache(b""))
    )
    if cache is None or lost or not config.set_timing_cache(cache, False):
        raise ParityError(
            f"{path.name} is no timing cache of this GPU and version",
            where=str(path),
            fix="name a file that does not exist yet: it is written after the build",
        )


def _cache_size(cache: Any) -> int:
    return len(bytes(memoryview(cache.serialize())))


def _set_capabilities(config: Any, options: TensorrtOptions, package: Package) -> None:
    if not options.capabilities:
        return
    known = package.module.ComputeCapability.__members__
    names = [f"SM{number}" for number in options.capabilities]
    if unknown := [name for name in names if name not in known]:
        has = ", ".join(f"{int(name[2:-1])}.{name[-1]}" for name in known if name[2:].isdigit())
        raise ParityError(
            f"{package.title} {package.version} does not know compute capability {unknown[0][2:-1]}.{unknown[0][-1]}",
            fix=f"use some of: {has}",
        )
    config.num_compute_capabilities = len(names)
    for index, name in enumerate(names):
        config.set_compute_capability(known[name], index)


def set_route(config: Any, options: TensorrtOptions, package: Package) -> None:
    """Sets the knobs of the compiler that the options name."""
    if not options.build_route:
        return
    # The libraries of some products have the member and no knobs behind it; they would take anything and do nothing.
    if package.product == "rtx" or package.numbers[:2] < (11, 1) or not str(config.all_build_routes).strip():
        raise ParityError(
            f"{package.title} {package.version} has no build routes: the first is TensorRT 11.1 on Linux",
            fix="leave build_route= out, or compare two versions of TensorRT",
        )
    known = _knobs_named(str(config.all_build_routes))
    for token in options.build_route.split():
        name, equals, value = token.partition("=")
        if not (token.startswith("-") and equals and value):
            raise ParityError(f"build_route={token!r} is not -name=value", fix="write build_route=-conv_use_long_w=off")
        if known and name.lstrip("-") not in known:
            near = difflib.get_close_matches(name.lstrip("-"), known, n=3) or sorted(known)[:3]
            raise ParityError(
                f"{package.title} {package.version} has no knob {name}",
                fix=f"trtexec --helpBuildRoute lists them; for example {', '.join(f'-{each}' for each in near)}",
            )
    config.build_route = options.build_route
    if not str(config.build_route).strip():
        raise ParityError(
            f"{package.title} {package.version} refuses build_route={options.build_route!r}",
            fix="trtexec --helpBuildRoute=NAME tells a knob's values",
        )


def _knobs_named(description: str) -> frozenset[str]:
    """The knobs that `all_build_routes` names, without dashes; none where it is of another form.

    Source: BuildRouteKnobDatabase in trtexec of TensorRT 11.1 and torch_tensorrt.dynamo.tuning.routes: an object whose
    "tuner_options" are objects with "option" ("-conv_use_long_w"), "allowed_values" and "default_value".
    """
    try:
        held = json.loads(description)
    except ValueError:
        return frozenset()
    options = held.get("tuner_options") if isinstance(held, dict) else None
    named = (each.get("option") for each in options if isinstance(each, dict)) if isinstance(options, list) else ()
    return frozenset(name.lstrip("-") for name in named if isinstance(name, str) and name)
