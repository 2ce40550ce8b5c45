"""(Case, Target) -> Trace: one file per runtime, behind one contract; the only code that runs models.

A backend is a value of plain functions. `open` gives a session that runs one sample at a time; everything that all
backends share is written once: parsing targets (`targets`), child processes (`opening`), choosing chunks (`sizing`),
spilling to disk and timing (`recording`).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.errors import ParityError
from parityscope.plugins import discover, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.records import ExecutedGraph, Skip, Target

__all__ = ["Backend", "Capture", "Probe", "Session", "backend", "backends", "probed"]


# ONNX Runtime 1.31 writes a session file for its telemetry when it is imported. What is examined here is nobody else's business;
# whoever wants it sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# OpenVINO tells its maker of every import, by a package that has no such variable; where that is missing it tells nobody.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None: not to be imported


_PACKAGES = {"ort": "onnxruntime", "sim": "onnxruntime", "triton": "tritonclient", "trt": "tensorrt"}


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
    (it raises ParityError) while the session is open.
    """

    run: Callable[[Sample], Mapping[str, np.ndarray]]
    disturbs: str = "none"
    executed: ExecutedGraph | None = None
    inspect: Callable[[], ExecutedGraph] | None = None
    absent: tuple[Skip, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A runtime.

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
    probe: Callable[[], Probe]
    open: Callable[[Model, Target, Capture], AbstractContextManager[Session]]
    isolated: bool = False
    builds_for_shapes: bool = False
    plain: frozenset[str] | None = None
    files: frozenset[str] = frozenset()
    called: tuple[str, ...] = ()
    opens: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def backends() -> dict[str, Backend]:
    """Every backend there is, usable here or not, by name."""
    return {found.name: found for found, _ in discover("parityscope.backends", "BACKEND", Backend).values()}


def backend(name: str) -> Backend:
    """The backend called `name`.

    Raises:
        ParityError: there is none of that name.
    """
    found = find("parityscope.backends", "BACKEND", Backend, name)
    if found is None:
        raise ParityError(f"there is no backend {name!r}", fix=f"use one of: {', '.join(sorted(backends()))}")
    return found


def probed(found: Backend) -> Probe:
    """What `found` says of itself; a package that is there and broken is a problem too, and no traceback.

    One that was taken away in part is imported as an empty module: two builds of ONNX Runtime share a folder, and whoever removes
    one of them leaves such a rest. One whose libraries do not fit raises whatever it likes.
    """
    try:
        return found.probe()
    except (ImportError, OSError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        package = _PACKAGES.get(found.name, found.name)
        return Probe(
            problem=f"{package} is installed and broken: {words}",
            fix=f"install it again: pip install --force-reinstall {package}",
        )
