"""TensorRT: an engine built from the model, or one that exists (`trt?engine=model.plan`).

**What runs.** `tensorrt` (8.6 to 10, 11) or TensorRT-RTX, whichever is installed (`product=tensorrt|rtx`). A network from ONNX is
strongly typed wherever the version can (9 and newer): the types of the file are those of the engine. A precision behind
the colon, `layers=NAME:f32` and `constraints=` make a weakly typed build up to TensorRT 10; 11 and RTX have no such thing, and
asking for it is an error that names the strongly typed way. TF32 is off unless `tf32=on`, whatever the tools' defaults are.

**Shapes.** An engine covers the shapes that `shapes=` gives, else those of all samples. It is kept on disk (`cache=off`: it is
not), because two builds of one model may choose other kernels: every session of an examination runs the same engine.

**Without a GPU.** `trt?build=only` parses and builds with TensorRT-RTX on any Linux machine, and tells the engine as an
`ExecutedGraph`; it runs nothing. `parityscope network MODEL` shows the same with the fate of every node.

**With one.** Inputs and outputs go strictly by name; types, shapes, layouts and the profile are checked first. Outputs are
filled with a pattern before each run, and one that still holds it afterwards is an error.

**Looking inside.** `observe=unfused` (the default where the version can) shows every tensor that lies between two kernels
and changes no fusion; `observe=debug` and `observe=outputs` show tensors by name and end fusions there. The outputs are always
held against those of the engine that nobody looked into. `summary=ranges.json` keeps the range of every tensor that is shown and
nothing else, so that memory stays bounded.

It runs in a child process (`isolate=off`: it does not), so that a crash of TensorRT becomes an error with its last words.

NOT RUN: the part that runs an engine was written from NVIDIA's documentation; no GPU that it supports was at hand.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends.tensorrt.packages import Package, find_package, gpu_problem
from parityscope.errors import ParityError
from parityscope.installed import arithmetic_on_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.case import Model, Sample
    from parityscope.installed import Arithmetic, Machine
    from parityscope.records import Target

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_FIRST_INT64 = 10  # before it the parser makes int32 of a file's int64
_NETWORK = "parityscope network MODEL looks at the network and the engine without a GPU"


def _probe_package() -> Probe:
    try:
        package = find_package()
    except ParityError as error:
        return Probe(problem=error.problem, fix=error.fix)
    problem = gpu_problem(package)
    facts = {"product": package.module.__name__, "typing": "weak or strong" if package.weakly_typed else "strong only"}
    return Probe(version=package.version, facts={**facts, "can run": problem or "yes"})


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    from parityscope.backends.tensorrt.options import options_of

    package = find_package(target.option("product"))
    options = options_of(target, package)
    check_scales(model, options)
    if options.device:
        choose_device(options.device)
    if target.option("build") == "only":
        yield _built_only(model, package, _with_sample_shapes(options, capture))
        return
    engine = target.option("engine")
    if engine:
        content = _read_engine(Path(engine), package)
        _check_loads(content, package, options, engine)
    if problem := gpu_problem(package):
        raise ParityError(problem, where=engine or str(model.path), fix=f"run it on a machine with one; {_NETWORK}")
    from parityscope.backends.tensorrt.sessions import Wish, open_built, open_existing

    wish = Wish(
        model=model,
        package=package,
        options=options,
        capture=capture,
        observe=target.option("observe"),
        cached=target.option("cache") != "off",
        narrow=(target.option("narrow") or ("on" if package.numbers[0] < _FIRST_INT64 else "off")) == "on",
        summary=Path(target.option("summary")) if target.option("summary") else None,
    )
    with open_existing(content, engine, wish) if engine else open_built(wish) as session:
        yield session


def check_scales(model: Model, options: TensorrtOptions) -> None:
    """Refuses a build in INT8 that nobody gives scales: TensorRT would build it, and quantize with none.

    Raises:
        ParityError: the file quantizes nothing itself.
    """
    if options.precision == "int8" and "int8" not in model.formats:
        raise ParityError(
            "trt:int8 needs scales, and the model has none (no QuantizeLinear)",
            where=str(model.path),
            fix="quantize the model first (onnxruntime.quantization.quantize_static with QuantFormat.QDQ, or NVIDIA's Model "
            "Optimizer) and give that file as model=; or give the engine that was calibrated: trt?engine=model.plan",
        )


def choose_device(number: int) -> None:
    """Makes the GPU of that number the only one that this process sees, which builder, runtime and Polygraphy all follow.

    CUDA reads the variable once, when it is first called: this process is the session's own child.

    Raises:
        ParityError: the variable is set and names fewer.
    """
    visible = os.environ.get(_VISIBLE)
    seen = [item.strip() for item in visible.split(",")] if visible is not None else None
    if seen is not None and number >= len(seen):
        raise ParityError(
            f"there is no GPU {number}: {_VISIBLE} is {visible!r}", fix=f"use device=0 to device={len(seen) - 1}"
        )
    os.environ[_VISIBLE] = seen[number] if seen is not None else str(number)


def _with_sample_shapes(options: TensorrtOptions, capture: Capture) -> TensorrtOptions:
    """The options with the samples' shapes where nothing else was said."""
    from dataclasses import replace

    from parityscope.backends.tensorrt.profiles import ranges_of_samples

    return options if options.shapes else replace(options, shapes=ranges_of_samples(capture.shapes))


def _built_only(model: Model, package: Package, options: TensorrtOptions) -> Session:
    """The session of `build=only`: what was built, and an error when it is asked to run."""
    from dataclasses import replace

    from parityscope.backends.tensorrt.borders import site_names
    from parityscope.backends.tensorrt.naming import name_all_nodes
    from parityscope.backends.tensorrt.network import network_view

    view = network_view(model.path, package, options)
    if view.problem:
        raise ParityError(view.problem, where=str(model.path), fix=_NETWORK)

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        raise ParityError(
            f"trt?build=only builds and does not run, so sample {sample.name} has no outputs",
            where=str(model.path),
            fix=f"leave build=only out on a machine with a GPU; {_NETWORK}",
        )

    names = site_names(name_all_nodes(model.path, {}), model.sites)
    layers = (
        replace(layer, nodes=tuple(names.get(node, node) for node in layer.nodes)) for layer in view.executed.layers
    )
    return Session(
        run=run,
        executed=replace(view.executed, layers=tuple(layers)),
        absent=view.skipped,
        environment={"tensorrt": view.version, "engine inputs": ", ".join(view.engine_inputs)},
    )


def _read_engine(path: Path, package: Package) -> bytes:
    """The bytes of an engine, after what can be seen without loading it.

    Raises:
        ParityError: there is no such file, or it is no engine of this product.
    """
    from parityscope.backends.tensorrt.loading import check_plan

    if not path.is_file():
        raise ParityError(f"there is no engine at {path}", fix="give the path of a .plan or .engine file")
    content = path.read_bytes()
    check_plan(content, path, package)
    return content


def _check_loads(content: bytes, package: Package, options: TensorrtOptions, where: str) -> None:
    """Lets TensorRT read the engine, which tells most faults of it even without a GPU."""
    from parityscope.backends.tensorrt.loading import load_engine

    load_engine(content, package, options.plugins, where=where, carries_code=options.version_compatible)


def _list_arithmetic(machine: Machine) -> Iterator[Arithmetic]:
    if machine.told.get("trt", {}).get("can run") == "yes":
        why = "TensorRT's and trtexec's default is on, Polygraphy's off"
        yield arithmetic_on_gpu(machine, "trt", "the graph's types where strongly typed", why)


def _read_dump(path: Path, reference: Model) -> tuple[Path, tuple[str, ...]]:
    from parityscope.backends.tensorrt.stated import stated_file

    return stated_file(path, reference)


BACKEND = Backend(
    name="trt",
    title="TensorRT and TensorRT-RTX",
    called=("tensorrt", "tensorrt-rtx", "rtx"),
    opens={".engine": "engine", ".plan": "engine", ".trt": "engine"},
    options={
        "product": "tensorrt or rtx (default: the first that is installed)",
        "engine": "an engine that exists (.plan, .engine)",
        "build": "only: parse and build without a GPU, and do not run",
        "shapes": "x:1x3x8x8,y:1, or x:1x3x8x8..1x3x16x16..1x3x32x32 (default: those of the samples)",
        "fix": "sr:16000: inputs that become constants; everything that they decide is computed before the build",
        "settle": "on: compute what shapes and constants decide before the build (default: with fix=)",
        "tf32": "on or off (default); TensorRT's own default is on",
        "typing": "strong (default where the version can) or weak (up to 10)",
        "layers": "NAME:f32,/decoder/*:f32: precisions of nodes in a weakly typed build (up to 10)",
        "constraints": "obey (default with layers=) or prefer (up to 10)",
        "timing_cache": "a file of measured kernels, read and written",
        "plugins": "libraries with plugins: a.so,b.so",
        "version_compatible": "on: an engine that newer versions run; with engine=, that one may bring its own runtime",
        "hardware": "ampere_plus or same_cc: an engine for other GPUs too",
        "capability": "8.9,12.0: the GPUs to build for (TensorRT-RTX)",
        "build_route": "the compiler's knobs (11.1 and newer), as trtexec --setBuildRoute takes them",
        "level": "0 to 5: the builder's optimization level",
        "workspace": "4GiB: the most memory that a kernel may take",
        "tactics": "-CUDNN,+CUBLAS: libraries that kernels may come from (11: only EDGE_MASK_CONVOLUTIONS and JIT_CONVOLUTIONS)",
        "dla": "0: the DLA core that layers go to",
        "fallback": "off: refuse layers that the DLA lacks, instead of running them on the GPU",
        "device": "1: the GPU, by its number",
        "refit": "on: an engine whose weights can be replaced; with engine= they are, by the model's (10.0 and newer)",
        "observe": "unfused (default), debug or outputs: how tensors inside are shown; all: debug, before 10 outputs",
        "narrow": "on or off: int64 inputs are given as int32 where the engine wants them so (default: on before 10)",
        "summary": "a .json file for the ranges of all tensors that the engine shows, over all samples",
        "cache": "off: build again in every session",
    },
    precisions=("f32", "f16", "bf16", "int8", "f8e4m3"),
    observes=True,
    probe=_probe_package,
    open=_open_session,
    isolated=True,
    builds_for_shapes=True,
    plain=frozenset(
        {
            *("product", "build", "shapes", "fix", "settle", "tf32", "typing", "layers", "constraints"),
            *("version_compatible", "hardware", "capability", "level", "observe", "narrow", "cache"),
            *("workspace", "tactics", "dla", "fallback", "device", "refit"),
        }
    ),
    words="TensorRT",
    package="tensorrt",
    translates={".json": _read_dump},
    tensorrt="yes",
    arithmetic=_list_arithmetic,
)
