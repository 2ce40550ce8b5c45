"""The builder's configuration from the options: flags, profile, timing cache, compatibility, and the compiler's knobs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends._tensorrt.options import WEAK_FLAGS
from parityscope.backends._tensorrt.profiles import add_profile
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends._tensorrt.api import Builder, BuilderConfig
    from parityscope.backends._tensorrt.layers import NetworkTensor
    from parityscope.backends._tensorrt.options import Options
    from parityscope.backends._tensorrt.packages import Package

__all__ = ["configuration", "keep_timing_cache", "network_flags"]

_CONSTRAINTS = {"obey": "OBEY_PRECISION_CONSTRAINTS", "prefer": "PREFER_PRECISION_CONSTRAINTS"}
_HARDWARE = {"ampere_plus": "AMPERE_PLUS", "same_cc": "SAME_COMPUTE_CAPABILITY"}


def network_flags(options: Options, package: Package) -> int:
    """The flags that a network is made with: strongly typed, and with explicit batch where that is still a flag."""
    flags = package.module.NetworkDefinitionCreationFlag
    wanted = 0
    if options.typing == "strong" and hasattr(flags, "STRONGLY_TYPED"):
        wanted |= 1 << int(flags.STRONGLY_TYPED)
    if package.numbers[0] < 10 and hasattr(flags, "EXPLICIT_BATCH"):
        wanted |= 1 << int(flags.EXPLICIT_BATCH)
    return wanted


def configuration(
    builder: Builder, inputs: Sequence[NetworkTensor], options: Options, package: Package
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
    if options.hardware:
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, _HARDWARE[options.hardware])
    if options.level is not None:
        config.builder_optimization_level = options.level
    _set_capabilities(config, options, package)
    _set_route(config, options, package)
    _set_timing_cache(config, options)
    add_profile(builder, config, inputs, options.shapes)
    return config


def keep_timing_cache(config: BuilderConfig, options: Options) -> None:
    """Writes what was measured during a build back to the file that the options name."""
    if options.timing_cache is None:
        return
    held = bytes(memoryview(config.get_timing_cache().serialize()))
    folder = options.timing_cache.parent
    # Another process that builds at the same time must not read half a file.
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=options.timing_cache.name)
    with os.fdopen(descriptor, "wb") as written:
        written.write(held)
    Path(name).replace(options.timing_cache)


def _set_timing_cache(config: BuilderConfig, options: Options) -> None:
    path = options.timing_cache
    if path is None:
        return
    if not path.parent.is_dir():
        raise ParityError(f"there is no folder {path.parent}", where=str(path), fix="make it, or name another file")
    cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
    if cache is None or not config.set_timing_cache(cache, False):
        raise ParityError(
            f"{path.name} is no timing cache of this GPU and version",
            where=str(path),
            fix="name a file that does not exist yet: it is written after the build",
        )


def _set_capabilities(config: Any, options: Options, package: Package) -> None:
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


def _set_route(config: Any, options: Options, package: Package) -> None:
    if not options.build_route:
        return
    # The libraries of some products have the member and no knobs behind it; they would take anything and do nothing.
    if package.product == "rtx" or package.numbers[:2] < (11, 1) or not str(config.all_build_routes).strip():
        raise ParityError(
            f"{package.title} {package.version} has no build routes: the first is TensorRT 11.1 on Linux",
            fix="leave build_route= out, or compare two versions of TensorRT",
        )
    config.build_route = options.build_route
