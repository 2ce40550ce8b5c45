"""What every backend promises, as plain functions that a plug-in's author calls from a test.

`check_backend(BACKEND, model, sample, target)` runs the target as recording does and raises AssertionError with one
sentence for the first promise that is broken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parityscope.backends import Capture
from parityscope.backends.targets import check_target
from parityscope.case.graph import computed_values
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parityscope.backends import Backend
    from parityscope.case import Model, Sample
    from parityscope.records import Target

_UNKNOWN = "no-such-thing"


def check_backend(
    backend: Backend, model: Model, sample: Sample, target: Target, *, deterministic: bool = True
) -> None:
    """Checks `backend` on one sample; `deterministic` says that a repeated run must give the same bits.

    Raises:
        AssertionError: a sentence that says what the backend does not keep.
        ParityError: the target is refused, or its runtime fails.
    """
    _check_probe(backend)
    _check_refusals(backend, target)
    check_target(target, backend)
    with backend.open(model, target, Capture()) as session:
        first = {name: np.array(array) for name, array in session.run(sample).items()}
        _check_outputs(backend, model, first)
        if deterministic:
            _check_repeated(backend, first, session.run(sample))
    if backend.observes:
        _check_capture(backend, model, sample, target)


def _check_probe(backend: Backend) -> None:
    found = backend.probe()
    require_promise(
        bool(found.version or found.problem), f"{backend.name}: its probe gives neither a version nor a problem"
    )
    require_promise(not found.problem, f"{backend.name} cannot be checked where it cannot be used: {found.problem}")


def _check_refusals(backend: Backend, target: Target) -> None:
    options = ((_UNKNOWN, "1"),)
    for wrong in (replace(target, precision=_UNKNOWN), replace(target, options=(*target.options, *options))):
        try:
            check_target(wrong, backend)
        except ParityError as error:
            require_promise(bool(error.fix), f"{backend.name}: refusing {_UNKNOWN!r} names no fix")
        else:
            raise AssertionError(f"{backend.name} accepts the unknown precision or option {_UNKNOWN!r}")


def _check_outputs(backend: Backend, model: Model, arrays: Mapping[str, np.ndarray]) -> None:
    for value in model.outputs:
        require_promise(
            value.name in arrays, f"{backend.name} does not give output {value.name!r} by its declared name"
        )
        array = arrays[value.name]
        require_promise(
            array.dtype.name == value.dtype,
            f"{backend.name} gives output {value.name!r} as {array.dtype.name}, declared is {value.dtype}",
        )
        if value.shape is None:
            continue
        fits = array.ndim == len(value.shape) and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, array.shape, strict=True)
        )
        require_promise(
            fits,
            f"{backend.name} gives output {value.name!r} in shape {list(array.shape)}, declared is {list(value.shape)}",
        )


def _check_repeated(backend: Backend, first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> None:
    require_promise(
        first.keys() == second.keys(), f"{backend.name} gives other tensors when it runs the same sample again"
    )
    for name, array in first.items():
        same = array.shape == second[name].shape and array.tobytes() == second[name].tobytes()
        require_promise(same, f"{backend.name} gives another {name!r} when it runs the same sample again")


def _check_capture(backend: Backend, model: Model, sample: Sample, target: Target) -> None:
    outputs = {value.name for value in model.outputs}
    asked = tuple(str(value.name) for value in computed_values(model.graph()) if value.name not in outputs)
    with backend.open(model, target, Capture(tensors=asked)) as session:
        arrays = session.run(sample)
        _check_outputs(backend, model, arrays)
        extra = sorted(set(arrays) - outputs - set(asked))
        require_promise(not extra, f"{backend.name} gives tensors that nobody asked for: {', '.join(extra)}")


def require_promise(kept: object, sentence: str) -> None:
    """Checks what a plug-in promises.

    Raises:
        AssertionError: it is not kept, in a sentence.
    """
    # Not an assert statement: those vanish under python -O.
    if not kept:
        raise AssertionError(sentence)
