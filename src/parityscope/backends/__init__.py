"""(Case, Target) -> Trace: one file per runtime, behind one contract; the only code that runs models.

A backend is a value of plain functions. `open` gives a session that runs one sample at a time; everything that all
backends share is written once: parsing targets (`targets`), child processes (`opening`), choosing chunks (`sizing`),
spilling to disk and timing (`recording`).
"""

from __future__ import annotations

import importlib
import os
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass, field
from parityscope.plugins import discover_plugins, find_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.installed import Arithmetic, Machine
    from parityscope.records import ExecutedGraph, Skip, Target

    Arrays = Mapping[str, np.ndarray]


# ONNX Runtime 1.31 writes a session file for its telemetry when it is imported. What is examined here is nobody else's business;
# whoever wants it sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# OpenVINO tells its maker of every import, by a package that has no such variable; where that is missing it tells nobody.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None: not to be imported


# Whether something is so: known, or hidden behind a program, a server or a recording.
Certainty = Literal["no", "perhaps", "yes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a backend can be used here: `problem` is empty when it can; `fix` says how to get it."""

    version: str = ""
    problem: str = ""
    fix: str = ""
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Which tensors to give back besides the outputs, by the reference model's value names.

    With `tensors` empty the deployment runs undisturbed. `shapes` are those of the samples by input, each once, for a runtime
    that builds for them (`Backend.builds_for_shapes`).
    """

    tensors: tuple[str, ...] = ()
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A model made ready to run. `run` takes a sample and gives arrays by name (outputs, then captured tensors).

    `executed` is what the engine really runs, where it tells for nothing; where that costs something, `inspect` finds out
    (it raises ParityError) while the session is open. `spent` are seconds that its answers took before it was handed out.
    `reshaped` says of outputs that lacked axes of one, or had more than the model declares, how they were first given, and how
    they are given back (`backends/declared_axes.py`); `rounded` of outputs in a coarser float than it declares, in which.
    """

    run: Callable[[Sample], Mapping[str, np.ndarray]]
    disturbs: str = "none"
    executed: ExecutedGraph | None = None
    inspect: Callable[[], ExecutedGraph] | None = None
    absent: tuple[Skip, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spent: float = 0.0
    reshaped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    rounded: dict[str, tuple[str, str]] = field(default_factory=dict)


def _give_nothing(_told: object) -> tuple[()]:
    return ()


def _probe_itself() -> Probe:
    return Probe(version="1")


def _widens_nothing(_target: Target) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A runtime, and all that anybody asks of it: nothing outside this folder goes by its name.

    `options` maps each accepted option of a target to its help text; `precisions` are those that may stand behind
    the colon. `observes` says whether intermediate tensors can be captured, `isolated` that it runs in a child process
    unless the target says `isolate=off`, `builds_for_shapes` that it wants the samples' shapes beforehand. `open` may
    assume that `probe` found no problem and that the target's options and precision are among those listed; it raises
    ParityError for a model that the runtime refuses.

    A study that somebody sent names targets too. `plain` are the options that it may set, since their values are mere words,
    and `files` those that name files which are read as data: these are read if they are the study's. Every other
    option names code, a file that is written, or another machine, and whoever repeats an experiment names it again. With
    None for `plain` (the default) that goes for the whole backend.

    `called` are other names that people write for it. `opens` says which bare paths mean it as a target: by the path's ending
    ("/" for a folder), the option that takes it.
    """

    name: str
    title: str
    options: Mapping[str, str]
    precisions: tuple[str, ...]
    observes: bool
    open: Callable[[Model, Target, Capture], AbstractContextManager[Session]]
    #: whether it can be used here; without, it needs nothing but this package
    probe: Callable[[], Probe] = _probe_itself
    isolated: bool = False
    builds_for_shapes: bool = False
    plain: frozenset[str] | None = None
    files: frozenset[str] = frozenset()
    called: tuple[str, ...] = ()
    opens: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: as a sentence calls it, where that is not the title: "a recording"
    words: str = ""
    #: the package that brings it, as pip knows it, and as its version is told among the facts; "": its own name
    package: str = ""
    #: it runs nothing and answers only for what it has
    recorded: bool = False
    #: it computes on purpose in less than the machine could, and takes as long as it likes
    simulates: bool = False
    #: it runs a program of the user's: another one tomorrow, perhaps, and one that reads variables of the environment
    runs_program: bool = False
    #: whether a target computes a file of half precision in FP32, so that its answer tells nothing of that precision
    widens_halves: Callable[[Target], bool] = _widens_nothing
    #: it reads the model's file itself
    reads_model: bool = True
    #: it runs whatever file `model=` names at the cost of a run, so that repairs can be tried on it
    tries_repairs: bool = False
    #: it brings an FP32 model to its precision by itself, so that repairs need not write types
    converts: bool = False
    #: the profile of its fusion and rounding, by the name in `arithmetic/fusion`
    profile: str = ""
    #: whether it is ONNX Runtime that computes, and whether it is TensorRT
    onnxruntime: Certainty = "no"
    tensorrt: Certainty = "no"
    #: why nobody times it; "" where that makes sense
    untimed: str = ""
    #: the target with one switch thrown, for each that the runtime has: its optimizer, its threads, a precision
    switched: Callable[[Target], Iterable[Target]] = _give_nothing
    #: writes the graph that a target makes of a model, as ONNX, to a path, or raises ParityError; None: it does not tell
    write_executed: Callable[[Model, Target, Path], None] | None = None
    #: what writes a file of its own kind, which `model=` may name too, as ONNX beside a reference, by the file's ending; and what
    #: of it that cannot hold
    translates: Mapping[str, Callable[[Path, Model], tuple[Path, tuple[str, ...]]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    #: writes what a target is by itself, without a file of ONNX, as ONNX that takes these samples, or raises ParityError
    write_graph: Callable[[Model, Target, Sequence[Arrays], Path], None] | None = None
    #: where a target is the network before its conversion: that in FP32, then in its other modes
    origins: Callable[[Target], Iterable[Target]] | None = None
    #: what a deployment writes to have an arithmetic, as code by the change ("f32", "tf32_off")
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: the body of `run(path, inputs, names)`, which gives the outputs by name, with nothing but the runtime and numpy; None: no
    #: such program is known
    program: Callable[[Target], str] | None = None
    #: where its authors take reports of bugs
    tracker: str = ""
    #: the ways to run it on a machine on which it can be used, and what each computes in
    arithmetic: Callable[[Machine], Iterable[Arithmetic]] = _give_nothing
    #: packages and the CUDA major that each was built for, as far as they tell
    linked: Callable[[Probe], Iterable[tuple[str, int]]] = _give_nothing


def probe_of_module(
    name: str, install: str = "", tell: Callable[[Any], Mapping[str, str]] = lambda _: {}
) -> Callable[[], Probe]:
    """What probes a runtime by importing a module of it: its version, and the facts that `tell` reads off it.

    `install` is what pip calls the package, where that is not the module's name.
    """

    def probe() -> Probe:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            return Probe(problem=f"{name} cannot be imported: {error}", fix=f"pip install {install or name}")
        return Probe(version=str(module.__version__), facts=tell(module))

    return probe


def known_backends() -> dict[str, Backend]:
    """Every backend there is, usable here or not, by name."""
    return {found.name: found for found, _ in discover_plugins("parityscope.backends", "BACKEND", Backend).values()}


def backend_named(name: str) -> Backend:
    """The backend called `name`.

    Raises:
        ParityError: there is none of that name.
    """
    found = find_plugin("parityscope.backends", "BACKEND", Backend, name)
    if found is None:
        from parityscope.arithmetic.formats import NARROW

        known = (*sorted(known_backends()), *NARROW)
        raise ParityError(f"there is no backend {name!r}", fix=f"use one of: {', '.join(known)}")
    return found


def known_backend(name: str) -> Backend | None:
    """The backend called `name`; None where a document tells of one that is not installed here."""
    return find_plugin("parityscope.backends", "BACKEND", Backend, name)


def is_recording(target: Target) -> bool:
    """Whether nothing runs: the target answers with what was recorded."""
    return backend_named(target.backend).recorded


def is_simulation(target: Target) -> bool:
    """Whether the target computes on purpose in less than the machine could."""
    return backend_named(target.backend).simulates


def optimizes_as_onnxruntime(target: Target) -> bool:
    """Whether the target is ONNX Runtime with its optimizer, which can be switched off."""
    found = backend_named(target.backend)
    return found.onnxruntime == "yes" and "optimization" in found.options


def arithmetic_of(machine: Machine) -> tuple[Arithmetic, ...]:
    """What every path that can be used on `machine` computes in: ONNX Runtime's first, which is the usual reference."""
    usable = [one for one in known_backends().values() if one.name in machine.backends]
    usable.sort(key=lambda one: one.onnxruntime != "yes")
    return tuple(each for one in usable for each in one.arithmetic(machine))


def probe_backend(found: Backend) -> Probe:
    """What `found` says of itself; a package that is there and broken is a problem too, and no traceback.

    One that was taken away in part is imported as an empty module: two builds of ONNX Runtime share a folder, and whoever removes
    one of them leaves such a rest. One whose libraries do not fit raises whatever it likes.
    """
    try:
        return found.probe()
    except (ImportError, OSError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        package = found.package or found.name
        return Probe(
            problem=f"{package} is installed and broken: {words}",
            fix=f"install it again: pip install --force-reinstall {package}",
        )
