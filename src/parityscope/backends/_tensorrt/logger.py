"""The one logger of a process that TensorRT writes to, and where its words go during a build."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["logging_to"]

# The loggers that TensorRT was given, by package; they are never freed.
_LOGGERS: dict[str, Any] = {}


@contextlib.contextmanager
def logging_to(trt: Any, lines: TextIO) -> Iterator[Any]:
    """The process's one logger, writing what TensorRT says to `lines` in the form of its own Python logger.

    TensorRT keeps the first logger that it is given for as long as the process lives, and calls it from any object; one that
    is gone is a crash. So there is one for each package, it is never freed, and it writes nothing outside of a build.
    """
    name = trt.__name__
    if name not in _LOGGERS:

        class Logger(trt.ILogger):  # type: ignore[misc] # TensorRT calls back only into a class derived from its own
            sink: TextIO | None = None

            def log(self, severity: Any, text: str) -> None:
                if self.sink is not None:
                    letter = {"VERBOSE": "V", "INFO": "I", "WARNING": "W"}.get(severity.name, "E")
                    self.sink.write(f"[TRT] [{letter}] {text}\n")

        _LOGGERS[name] = Logger()
    logger = _LOGGERS[name]
    logger.sink = lines
    try:
        yield logger
    finally:
        logger.sink = None
