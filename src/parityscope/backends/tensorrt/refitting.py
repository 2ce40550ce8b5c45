"""Puts the weights of an ONNX file into an engine that was built to be refitted: other weights in the same kernels.

An engine that does what the file says once it holds the file's weights held others before, those of another checkpoint; one
that still differs was built into something else. Neither takes a build.

Source: NVIDIA's "Refitting an Engine" and the docstrings of `Refitter` and `OnnxParserRefitter` (10.0 on). NOT RUN on a GPU.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from parityscope.backends.tensorrt.logger import logging_to
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.backends.tensorrt.packages import Package

__all__ = ["refit_engine"]

_BUILT = "build it to be refitted: trtexec --refit, or trt?refit=on without engine="


def refit_engine(engine: Any, package: Package, path: Path, where: str) -> None:
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
