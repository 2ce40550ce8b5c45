"""Sessions of engines: one that exists, or one that is built for the samples' shapes and kept.

Where the shapes are not known beforehand the engine is built when the first sample comes, and built again, for all shapes
seen so far, when a sample comes that it does not cover. NOT RUN on a GPU.

Puts the weights of an ONNX file into an engine that was built to be refitted: other weights in the same kernels.

An engine that does what the file says once it holds the file's weights held others before, those of another checkpoint; one
that still differs was built into something else. Neither takes a build.

Source: NVIDIA's "Refitting an Engine" and the docstrings of `Refitter` and `OnnxParserRefitter` (10.0 on). NOT RUN on a GPU.
"""

from __future__ import annotations

import contextlib
import io
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from parityscope.backends import Session
from parityscope.backends.gpu import find_driver, settings_of_gpu
from parityscope.backends.tensorrt.asked import asked_of
from parityscope.backends.tensorrt.borders import read_by, site_names
from parityscope.backends.tensorrt.building import build_engine
from parityscope.backends.tensorrt.loading import load_engine
from parityscope.backends.tensorrt.logger import logging_to
from parityscope.backends.tensorrt.marking import Marked, Marks, way_for
from parityscope.backends.tensorrt.naming import name_all_nodes
from parityscope.backends.tensorrt.network import described_by, executed_graph
from parityscope.backends.tensorrt.plan_cache import KeptEngine, cache_folder, find_engine, keep_engine, key_of
from parityscope.backends.tensorrt.profiles import ranges_of_samples
from parityscope.backends.tensorrt.running import EngineQuestion, open_engine
from parityscope.errors import ParityError
from parityscope.light_dataclasses import asdict, dataclass, fields, replace
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends import Capture
    from parityscope.backends.tensorrt.loading import LoadedEngine
    from parityscope.backends.tensorrt.options import TensorrtOptions
    from parityscope.backends.tensorrt.packages import Package
    from parityscope.case import Model, Sample
    from parityscope.records import ExecutedGraph

_BUILT = "build it to be refitted: trtexec --refit, or trt?refit=on without engine="
_DISTURBS = {"unfused": "unfused tensors shown", "debug": "debug tensors marked", "outputs": "outputs marked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to run, and how it is looked into."""

    model: Model
    package: Package
    options: TensorrtOptions
    capture: Capture
    observe: str = ""
    cached: bool = True
    narrow: bool = False
    summary: Path | None = None


@contextlib.contextmanager
def open_existing(content: bytes, engine: str, wish: Wish) -> Iterator[Session]:
    """A session of an engine that exists; it shows what it was built to show, and nothing else.

    Raises:
        ParityError: TensorRT refuses it, or it is not the model's.
    """
    loaded = _load_or_explain(content, wish, engine)
    if wish.options.refit:
        _refit_engine(loaded.engine, wish.package, wish.model.path, engine)
    asked = EngineQuestion(
        describe=lambda layers: executed_graph(layers, wish.options.precision or "f32"),
        tensors=wish.capture.tensors,
        narrow=wish.narrow,
        summary=wish.summary,
        fixed=wish.options.values,
        # Nothing tells whether its builder marked what lies between kernels: what then does not come is told as missing.
        marked=Marked(names={name: name for name in wish.capture.tensors}, unfused=True),
        disturbs="debug tensors read" if wish.capture.tensors else "none",
        where=engine,
        reads=lambda: read_by(name_all_nodes(wish.model.path, {}), wish.model.sites),
        environment=_tensorrt_environment(wish),
    )
    with open_engine(loaded, wish.package, wish.model, asked) as session:
        yield session


@contextlib.contextmanager
def open_built(wish: Wish) -> Iterator[Session]:
    """A session of an engine that is built for the shapes given, for the samples', or for those that come.

    Raises:
        ParityError: nothing can be built.
    """
    with contextlib.ExitStack() as opened:
        if wish.options.shapes or wish.capture.shapes or not _has_dynamic_inputs(wish.model):
            shapes = [{name: one.usual for name, one in wish.options.shapes.items()}] if wish.options.shapes else []
            yield opened.enter_context(_open_built_engine(wish, shapes or list(wish.capture.shapes)))
            return
        coming = _Coming(wish, opened)
        yield Session(
            run=coming.run,
            disturbs=_disturbance_of_marks(wish),
            inspect=coming.inspect,
            environment=_tensorrt_environment(wish),
        )


class _Coming:
    """The session of an engine that is built when samples come; it owns the engine's session."""

    def __init__(self, wish: Wish, opened: contextlib.ExitStack) -> None:
        self._wish = wish
        self._opened = opened
        self._seen: list[Mapping[str, tuple[int, ...]]] = []
        self._session: Session | None = None

    def run(self, sample: Sample) -> Mapping[str, np.ndarray]:
        shapes = {name: array.shape for name, array in sample.arrays.items()}
        if self._session is None or not _is_covered(shapes, self._seen):
            self._seen.append(shapes)
            self._opened.close()
            self._session = self._opened.enter_context(_open_built_engine(self._wish, self._seen))
        return self._session.run(sample)

    def inspect(self) -> ExecutedGraph:
        if self._session is None or self._session.executed is None:
            raise ParityError("the engine is built when the first sample comes", fix="give shapes= in the target")
        return self._session.executed


def engine_of(wish: Wish, shapes: Sequence[Mapping[str, Sequence[int]]]) -> KeptEngine:
    """The engine that covers `shapes` (by input): a kept one, or one that is built now.

    Raises:
        ParityError: TensorRT refuses the model.
    """
    folder, key = cache_folder(), engine_key(wish)
    if wish.cached and (kept := find_engine(folder, key, shapes)) is not None:
        return kept
    options = wish.options
    if not options.shapes:
        options = replace(options, shapes=ranges_of_samples(shapes))
    built = build_engine(wish.model.path, wish.package, options, marks=_marks_wanted(wish))
    if built.plan is None:
        raise ParityError(
            built.problem,
            where=str(wish.model.path),
            fix=built.fix or "parityscope network MODEL tells which node, and what can be done",
        )
    dynamic = {tensor.name for tensor in built.inputs if -1 in tensor.shape}
    facts = {
        "names": dict(built.marked.names),
        "absent": [asdict(skip) for skip in built.marked.absent],
        "unfused": built.marked.unfused,
    }
    ranges = {name: one for name, one in options.shapes.items() if name in dynamic}
    made = KeptEngine(plan=built.plan, ranges=ranges, facts=facts)
    if wish.cached:
        keep_engine(folder, key, made)
    return made


def engine_key(wish: Wish) -> str:
    """What goes into an engine, as the name under which it is kept."""
    driver = find_driver()
    options = {each.name: getattr(wish.options, each.name) for each in fields(wish.options)}
    options["values"] = {name: (array.dtype.name, array.tolist()) for name, array in wish.options.values.items()}
    options["shapes"] = {name: asdict(one) for name, one in wish.options.shapes.items()}
    # A file of timings changes with every build, and is not what the engine is.
    options.pop("timing_cache")
    return key_of(
        {
            "model": wish.model.sha256,
            "options": options,
            "plugins": [(str(path), path.stat().st_mtime_ns) for path in wish.options.plugins if path.exists()],
            "product": wish.package.module.__name__,
            "version": wish.package.version,
            "gpu": [(gpu.name, gpu.capability) for gpu in driver.gpus[:1]],
            "marks": asdict(marks) if (marks := _marks_wanted(wish)) else None,
        }
    )


@contextlib.contextmanager
def _open_built_engine(wish: Wish, shapes: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[Session]:
    kept = engine_of(wish, shapes)
    loaded = _load_or_explain(kept.plan, wish, str(wish.model.path))
    absent = tuple(Skip(**each) for each in kept.facts["absent"])
    renamed = name_all_nodes(wish.model.path, {})
    names = site_names(renamed, wish.model.sites)
    types = asked_of(renamed.message, wish.options)
    by_site = {names.get(node, node): kind for node, kind in types.items()}
    asked = EngineQuestion(
        describe=described_by(wish.options, by_site),
        tensors=wish.capture.tensors,
        narrow=wish.narrow,
        summary=wish.summary,
        fixed=wish.options.values,
        marked=Marked(names=kept.facts["names"], absent=absent, unfused=bool(kept.facts.get("unfused"))),
        disturbs=_disturbance_of_engine(wish, kept),
        where=str(wish.model.path),
        nodes=names,
        reads=lambda: read_by(renamed, wish.model.sites),
        environment=_tensorrt_environment(wish),
    )
    with open_engine(loaded, wish.package, wish.model, asked) as session:
        yield session


def _load_or_explain(content: bytes, wish: Wish, where: str) -> LoadedEngine:
    options = wish.options
    loaded = load_engine(content, wish.package, options.plugins, where=where, carries_code=options.version_compatible)
    if loaded.missing_cuda:
        raise ParityError(
            f"TensorRT cannot use the GPU: {loaded.missing_cuda}",
            where=where,
            fix="parityscope doctor tells what of driver and CUDA is missing",
        )
    return loaded


def _marks_wanted(wish: Wish) -> Marks | None:
    if not wish.capture.tensors and wish.summary is None:
        return None
    way = way_for(wish.observe, wish.package)
    # Every part of a long recording looks into one engine where it can: all unfused tensors are shown whatever is asked for.
    names = tuple(wish.model.sites) if way == "unfused" or wish.summary else wish.capture.tensors
    return Marks(way=way, names=names)


def _disturbance_of_marks(wish: Wish) -> str:
    marks = _marks_wanted(wish)
    return _DISTURBS[marks.way] if marks else "none"


def _disturbance_of_engine(wish: Wish, kept: KeptEngine) -> str:
    """As its marks were asked for; one that refused to show what lies between its kernels was marked by name."""
    told = _disturbance_of_marks(wish)
    return _DISTURBS["debug"] if told == _DISTURBS["unfused"] and not kept.facts.get("unfused") else told


def _has_dynamic_inputs(model: Model) -> bool:
    return any(value.shape is None or not all(isinstance(dim, int) for dim in value.shape) for value in model.inputs)


def _is_covered(shapes: Mapping[str, tuple[int, ...]], seen: Sequence[Mapping[str, tuple[int, ...]]]) -> bool:
    ranges = ranges_of_samples(seen)
    return all(name in ranges and ranges[name].covers(shape) for name, shape in shapes.items())


def _tensorrt_environment(wish: Wish) -> dict[str, str]:
    """The runtime, the GPU's settings, and the plug-in libraries with the beginning of their digests."""
    plugins = (f"{path.name} {sha256(path.read_bytes()).hexdigest()[:12]}" for path in wish.options.plugins)
    told = {"tensorrt": f"{wish.package.module.__name__} {wish.package.version}", **settings_of_gpu()}
    return {**told, "plug-ins": ", ".join(plugins)} if wish.options.plugins else told


def _refit_engine(engine: Any, package: Package, path: Path, where: str) -> None:
    """Replaces the weights of `engine` by those of the ONNX file at `path`; `where` is the engine's file.

    Raises:
        ParityError: the engine or the version cannot be refitted, or the file has not every weight that the engine needs.
    """
    trt = package.module
    if not hasattr(trt, "OnnxParserRefitter"):
        raise ParityError(
            f"{package.title} {package.version} does not refit from an ONNX file (10.0 is the first)",
            fix="leave refit=on and engine= out: an engine that is built here has the file's weights",
        )
    if not engine.refittable:
        raise ParityError("the engine cannot be refitted: its weights are fixed", where=where, fix=_BUILT)
    said = io.StringIO()
    with logging_to(trt, said) as logger:
        refitter = trt.Refitter(engine, logger)
        parser = trt.OnnxParserRefitter(refitter, logger)
        taken = parser.refit_from_file(str(path))
        missing = list(refitter.get_missing_weights())
        done = taken and not missing and refitter.refit_cuda_engine()
    if done:
        return
    told = [" ".join(parser.get_error(index).desc().split()) for index in range(parser.num_errors)]
    told += [line.partition("[E] ")[2] for line in said.getvalue().splitlines() if "[E] " in line]
    if missing:
        told.insert(0, f"the engine needs weights that {path.name} does not have: {', '.join(sorted(missing)[:3])}")
    raise ParityError(
        f"the engine cannot be refitted from {path.name}: {told[0] if told else 'TensorRT does not say why'}",
        where=where,
        fix="give the model that the engine was built from, with other weights under the same names; or build it again",
    )
