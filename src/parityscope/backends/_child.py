"""A backend's session inside a child process: a crash, a hang or a kill of a runtime becomes an error.

The child (`_worker.py`) opens the session once and runs samples on request. Requests and answers are lines of JSON on
two pipes of their own, so that whatever a runtime prints cannot disturb them; arrays travel as safetensors files
in a scratch folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Capture, Session
from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.trace import read_safetensors, write_safetensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case import Model, Sample
    from parityscope.records import Target

__all__ = ["open_in_child"]

_TAIL_LINES = 8
_START_LIMIT_S = 600.0  # chosen: compiling a large engine takes minutes; beyond this it hangs


@contextlib.contextmanager
def open_in_child(model: Model, target: Target, capture: Capture, timeout: float) -> Iterator[Session]:
    """The session of `target` in a child process; each sample may take `timeout` seconds.

    Raises:
        ParityError: what the backend raised, or that its process died or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="parityscope-child-") as scratch:
        job = {"model": str(model.path), "target": format_target(target), "tensors": list(capture.tensors)}
        child = _Child(Path(scratch), job, format_target(target))
        try:
            opened = child.ask({"do": "open"}, max(timeout, _START_LIMIT_S), "loading the model")

            def run(sample: Sample) -> Mapping[str, np.ndarray]:
                file = Path(scratch, "inputs.safetensors")
                write_safetensors(file, sample.arrays)
                request = {"do": "run", "index": sample.index, "name": sample.name}
                child.ask(request, timeout, f"sample {sample.name}")
                outputs = read_safetensors(Path(scratch, "outputs.safetensors"))
                return {name: np.array(tensor.load()) for name, tensor in outputs.items()}

            yield Session(
                run=run,
                disturbs=opened["disturbs"],
                executed=_executed(opened["executed"]),
                absent=tuple(Skip(**skip) for skip in opened["absent"]),
                environment=opened["environment"],
            )
        finally:
            child.close()


class _Child:
    """The process and its two pipes."""

    def __init__(self, scratch: Path, job: Mapping[str, Any], title: str) -> None:
        self._title = title
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        self._log: IO[bytes] = (scratch / "log").open("w+b")
        requests_read, requests_write = os.pipe()
        answers_read, answers_write = os.pipe()
        words = [sys.executable, "-m", "parityscope.backends._worker", str(scratch)]
        self._process = subprocess.Popen(
            [*words, str(requests_read), str(answers_write)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(requests_read, answers_write),
            start_new_session=True,
        )
        os.close(requests_read)
        os.close(answers_write)
        self._requests = os.fdopen(requests_write, "w", encoding="utf-8")
        self._answers = os.fdopen(answers_read, "r", encoding="utf-8")

    def ask(self, request: Mapping[str, Any], timeout: float, doing: str) -> dict[str, Any]:
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._died(doing) from None
        ready, _, _ = select.select([self._answers], [], [], timeout)
        if not ready:
            raise ParityError(
                f"{self._title} took longer than {timeout:g} s on {doing}",
                where=self._tail(),
                fix="raise the limit (timeout=SECONDS in the target), or find out where it hangs",
            )
        line = self._answers.readline()
        if not line:
            raise self._died(doing)
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise ParityError(answer["problem"], where=answer["where"], fix=answer["fix"])
        return answer

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _died(self, doing: str) -> ParityError:
        status = self._process.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
        return ParityError(
            f"{self._title} {how} on {doing}",
            where=self._tail(),
            fix="the runtime itself crashed: try another version of it, fewer threads, or a smaller batch",
        )

    def _tail(self) -> str:
        self._log.flush()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return "its last words: " + " | ".join(lines[-_TAIL_LINES:]) if lines else "it printed nothing"


def _executed(plain: Mapping[str, Any] | None) -> ExecutedGraph | None:
    if plain is None:
        return None
    layers = tuple(ExecutedLayer(**{**layer, "nodes": tuple(layer["nodes"])}) for layer in plain["layers"])
    return ExecutedGraph(layers=layers, requested=plain["requested"], executed=plain["executed"])
