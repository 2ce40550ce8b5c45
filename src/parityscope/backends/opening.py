"""A target -> a session of it, in this process or in a child of its own."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import Capture, Session, backend_named, known_backends, probe_backend
from parityscope.backends.child import open_in_child
from parityscope.backends.command import parse_seconds
from parityscope.backends.declared_axes import give_as_declared
from parityscope.backends.declared_inputs import INPUTS, describe_taken, take_inputs_of
from parityscope.backends.targets import check_target, format_target, one_of
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.records import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from parityscope.backends import Backend
    from parityscope.case import Inputs, Model, Sample

_ONNX = ".onnx"
_ISOLATED_TIMEOUT_S = 600.0  # chosen, as for `command`


def model_of(model: Model, target: Target) -> Model:
    """The model that `target` runs: its own (`model=PATH`) or the reference's.

    Where nothing here runs it, what is broken in its file is left out. Inputs that it calls or lays out otherwise are the
    reference's in a copy of it (`declared_inputs`). A file of a runtime's own kind is read as ONNX of the
    reference's opset.

    Raises:
        ParityError: its file cannot be read.
    """
    path, runtime = target.option("model"), backend_named(target.backend)
    if not path:
        return model
    makers = known_backends().values() if runtime.recorded and Path(path).suffix != _ONNX else [runtime]
    translate = next((one.translates[end] for one in makers for end in one.translates if path.endswith(end)), None)
    if translate is None:
        return take_inputs_of(model, load_model(path, in_part=runtime.recorded), target)
    written, unread = translate(Path(path), model)
    return replace(load_model(written), source=Path(path), unread=unread)


@contextlib.contextmanager
def open_target(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    """A session of `target`, in a child process if the target asks for one (`isolate=on`, `timeout=SECONDS`).

    Raises:
        ParityError: the backend is unknown or unusable here, an option is, or the runtime refuses the model.
    """
    runtime = backend_named(target.backend)
    check_target(target, runtime)
    if problem := (probe := probe_backend(runtime)).problem:
        raise ParityError(problem, where=format_target(target), fix=probe.fix)
    if capture.tensors and not runtime.observes:
        raise ParityError(f"{runtime.name} shows no intermediate tensors", fix="compare its outputs only")
    own = model_of(model, target)
    told = describe_taken(model, own, target)
    timeout = target.option("timeout")
    isolate = one_of(target, "isolate", ("on", "off"), "on" if timeout or runtime.isolated else "off")
    if runtime.name == "command" or (isolate == "off" and not timeout):
        with runtime.open(own, target, capture) as session:
            yield give_as_declared(_telling_inputs(_telling_failures(session, runtime), told), model)
        return
    left = tuple((key, value) for key, value in target.options if key not in {"timeout", "isolate", "model", INPUTS})
    inner = Target(backend=target.backend, precision=target.precision, options=left)
    # A limit that was given is meant; without one, a build is no hang.
    builds = runtime.builds_for_shapes and not timeout
    with open_in_child(own, inner, capture, parse_seconds(timeout, _ISOLATED_TIMEOUT_S), builds=builds) as session:
        yield give_as_declared(_telling_inputs(_telling_failures(session, runtime), told), model)


def _telling_inputs(session: Session, told: str) -> Session:
    """The session, which notes what is `told` of the inputs."""
    if not told:
        return session
    note = "; ".join(filter(None, (told, session.environment.get("note", ""))))
    return replace(session, environment={**session.environment, "note": note})


def _telling_failures(session: Session, runtime: Backend) -> Session:
    """The session, whose errors on a sample are the runtime's failures; a recording or a program may just lack an answer."""
    if runtime.recorded or runtime.runs_program:
        return session

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        try:
            return session.run(sample)
        except ParityError as error:
            error.failing = True
            raise

    return replace(session, run=run)


def shapes_for(model: Model, target: Target, inputs: Inputs) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """The shapes that all samples have, each once, for a runtime that builds for them; nothing for others.

    All and not those of one recording, because an engine is to be the same in each of them. Where the model leaves no size
    open the first sample says all.
    """
    if not backend_named(target.backend).builds_for_shapes:
        return ()
    own = model_of(model, target)
    dynamic = any(value.shape is None or not all(isinstance(dim, int) for dim in value.shape) for value in own.inputs)
    found = {}
    for sample in inputs:
        shapes = {name: array.shape for name, array in sample.arrays.items()}
        found[tuple(sorted(shapes.items()))] = shapes
        if not dynamic:
            break
    return tuple(found.values())
