"""The one logger of a process that TensorRT writes to, and where its words go during a build."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from parityscope.backends.programs import IN_CHILD

if TYPE_CHECKING:
    from collections.abc import Iterator

# The loggers that TensorRT was given, by package; they are never freed.
LOGGERS: dict[str, Any] = {}


@contextlib.contextmanager
def logging_to(trt: Any, lines: TextIO) -> Iterator[Any]:
    """The process's one logger, writing what TensorRT says to `lines` in the form of its own Python logger.

    TensorRT keeps the first logger that it is given for as long as the process lives, and calls it from any object; one that
    is gone is a crash. So there is one for each package, it is never freed, and outside of this context it writes nothing. In a
    child process stderr gets every line too, so that the last ones are there when TensorRT takes the process with it.
    """
    name = trt.__name__
    if name not in LOGGERS:

        class Logger(trt.ILogger):  # type: ignore[misc] # TensorRT calls back only into a class derived from its own
            sink: TextIO | None = None

            def log(self, severity: Any, text: str) -> None:
                letter = {"VERBOSE": "V", "INFO": "I", "WARNING": "W"}.get(severity.name, "E")
                if self.sink is not None:
                    self.sink.write(f"[TRT] [{letter}] {text}\n")
                if IN_CHILD in os.environ:
                    sys.stderr.write(f"[TRT] [{letter}] {text}\n")

        LOGGERS[name] = Logger()
    logger = LOGGERS[name]
    logger.sink = lines
    try:
        yield logger
    finally:
        logger.sink = None
