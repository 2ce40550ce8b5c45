"""TensorRT: an engine built from the model, or one that exists (`trt?engine=model.plan`).

**What runs.** `tensorrt` (8.6 to 10, 11) or TensorRT-RTX, whichever is installed (`product=tensorrt|rtx`). A network from ONNX is
strongly typed wherever the version can (9 and newer): the types of the file are those of the engine. A precision behind
the colon sets the builder's flag up to TensorRT 10, which then may but need not use it; 11 and RTX have no such flags, and
asking for one is an error there. TF32 is off unless `tf32=on`, whatever the tools' defaults are.

**Without a GPU.** `trt?build=only` parses and builds with TensorRT-RTX on any Linux machine, and tells the engine as an
`ExecutedGraph`; it runs nothing. `parityscope network MODEL` shows the same with the fate of every node.

**With one.** Inputs and outputs go strictly by name; types, shapes and the profile are checked first. Outputs are filled with
a pattern before each run, so that one that was not written is seen. An engine that is built here covers exactly the shapes
that `shapes=` gives for dynamic inputs.

NOT RUN: the part that runs an engine was written from NVIDIA's documentation; no GPU that it supports was at hand.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends._tensorrt.packages import Package, find_package, gpu_problem
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.records import Target

__all__ = ["BACKEND"]

_NETWORK = "parityscope network MODEL looks at the network and the engine without a GPU"


def _probe() -> Probe:
    try:
        package = find_package()
    except ParityError as error:
        return Probe(problem=error.problem, fix=error.fix)
    problem = gpu_problem(package)
    facts = {"product": package.module.__name__, "typing": "weak or strong" if package.weakly_typed else "strong only"}
    return Probe(version=package.version, facts={**facts, "can run": problem or "yes"})


@contextlib.contextmanager
def _open(model: Model, target: Target, _capture: Capture) -> Iterator[Session]:
    package = find_package(target.option("product"))
    _check(target, package)
    if target.option("build") == "only":
        yield _built_only(model, target, package)
        return
    engine = target.option("engine")
    plan = _read_engine(Path(engine), package) if engine else None
    if problem := gpu_problem(package):
        raise ParityError(problem, where=engine or str(model.path), fix=f"run it on a machine with one; {_NETWORK}")
    from parityscope.backends._tensorrt.running import open_engine

    if plan is None:
        plan = _build(model, target, package)
    with open_engine(plan, package, where=engine or str(model.path), requested=target.precision) as session:
        yield session


def _build(model: Model, target: Target, package: Package) -> bytes:
    from parityscope.backends._tensorrt.building import build

    tf32 = target.option("tf32") == "on"
    built = build(model.path, package, shapes=_shapes(target), tf32=tf32, precision=target.precision)
    if built.plan is None:
        raise ParityError(built.problem, where=str(model.path), fix=_NETWORK)
    return built.plan


def _built_only(model: Model, target: Target, package: Package) -> Session:
    """The session of `build=only`: what was built, and an error when it is asked to run."""
    from parityscope.backends._tensorrt.network import executed_graph, network_view

    view = network_view(model.path, package, shapes=_shapes(target), tf32=target.option("tf32") == "on")
    if view.problem:
        raise ParityError(view.problem, where=str(model.path), fix=_NETWORK)

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        raise ParityError(
            f"trt?build=only builds and does not run, so sample {sample.name} has no outputs",
            where=str(model.path),
            fix=f"leave build=only out on a machine with a GPU; {_NETWORK}",
        )

    return Session(
        run=run,
        executed=executed_graph(view.engine_layers, target.precision or "f32"),
        absent=view.skipped,
        environment={"tensorrt": view.version, "engine inputs": ", ".join(view.engine_inputs)},
    )


def _check(target: Target, package: Package) -> None:
    if target.precision and not package.weakly_typed:
        raise ParityError(
            f"{package.module.__name__} {package.version} has no precision flags: types are those of the ONNX graph",
            fix="convert the model (parityscope repair MODEL --candidate TARGET --inputs DATA -o typed.onnx) and give it with "
            "model=typed.onnx",
        )
    for name, values in (("tf32", ("on", "off")), ("build", ("only",))):
        if (given := target.option(name)) and given not in values:
            raise ParityError(f"{name}={given!r} is not known", fix=f"use {name}={'|'.join(values)}")


def _shapes(target: Target) -> dict[str, tuple[int, ...]]:
    """`x:1x3x8x8,y:1` as shapes."""
    found = {}
    for item in target.option("shapes").split(",") if target.option("shapes") else ():
        name, _, dims = item.rpartition(":")
        parts = dims.split("x") if dims else []
        if not name or not all(part.isdigit() for part in parts):
            raise ParityError(f"shapes={item!r} is not name:1x3x224x224", fix="write shapes=x:1x3x224x224,y:1")
        found[name] = tuple(int(part) for part in parts)
    return found


def _read_engine(path: Path, package: Package) -> bytes:
    """The bytes of an engine, after what can be seen without loading it.

    Raises:
        ParityError: there is no such file, or it is no engine of this product.
    """
    from parityscope.backends._tensorrt.plans import check_plan

    if not path.is_file():
        raise ParityError(f"there is no engine at {path}", fix="give the path of a .plan or .engine file")
    content = path.read_bytes()
    check_plan(content, path, package)
    return content


BACKEND = Backend(
    name="trt",
    title="TensorRT and TensorRT-RTX",
    options={
        "product": "tensorrt or rtx (default: the first that is installed)",
        "engine": "an engine that exists (.plan, .engine)",
        "build": "only: parse and build without a GPU, and do not run",
        "shapes": "x:1x3x224x224,y:1: shapes of dynamic inputs for build=only",
        "tf32": "on or off (default); TensorRT's own default is on",
    },
    precisions=("f32", "f16", "bf16"),
    observes=False,
    probe=_probe,
    open=_open,
)
