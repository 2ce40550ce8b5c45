"""ONNX's own reference evaluator: slow Python, and what the standard says.

**Options**: none. **Precision**: as the model is typed.

Fill in: what your runtime is and how to get it; then `_probe_package` (why it cannot be used here, and what to do)
and `_open_session` (the model made ready, as a function from a sample to arrays by output name). List each option of
a target in `options` and each precision that may stand behind the colon in `precisions`; with `observes=True` the
session must also give back the tensors that `capture` asks for.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.errors import ParityError
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.case import Model
    from parityscope.records import Target


def _probe_package() -> Probe:
    try:
        import onnx
    except ImportError as error:
        return Probe(problem=f"onnx cannot be imported: {error}", fix="pip install onnx")
    return Probe(version=onnx.__version__)


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(str(model.path))
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise ParityError(
            f"the reference evaluator refuses the model: {error}", where=str(model.path), fix="use another backend"
        ) from error
    names = [value.name for value in model.outputs]
    yield Session(
        run=lambda sample: dict(zip(names, evaluator.run(names, dict(sample.arrays)), strict=True)),
        absent=tuple(Skip(what=f"tensor {name}", reason="only outputs are given back") for name in capture.tensors),
        environment={"asked for": target.backend},
    )


BACKEND = Backend(
    name="scaffold_name",
    title="ONNX reference evaluator",
    options={},
    precisions=(),
    observes=False,
    probe=_probe_package,
    open=_open_session,
)
