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
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Capture, Session
from parityscope.backends.programs import IN_CHILD, last_words, run_guarded, signal_name
from parityscope.backends.targets import format_target
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder
from parityscope.records import ExecutedGraph, ExecutedLayer, Skip
from parityscope.trace import read_safetensors, write_safetensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.case import Model, Sample
    from parityscope.records import Target

_START_LIMIT_S = 600.0  # chosen: compiling a large engine takes minutes; beyond this it hangs
_BUILD_LIMIT_S = 4 * 3600.0  # chosen: builds of large models with all tactics take an hour on small boxes
_END_LIMIT_S = 10.0  # chosen: a process that closed its pipe is about to end
_BLOCK = 1 << 16  # bytes; the capacity of a pipe


@contextlib.contextmanager
def open_in_child(
    model: Model, target: Target, capture: Capture, timeout: float, *, builds: bool = False
) -> Iterator[Session]:
    """The session of `target` in a child process; each sample may take `timeout` seconds.

    One that `builds` an engine, when it is opened or when a sample of another shape comes, may take `_BUILD_LIMIT_S` for it.

    Raises:
        ParityError: what the backend raised, or that its process died or took too long.
    """
    with scratch_folder("child") as scratch:
        job: dict[str, Any] = {
            "model": str(model.path),
            "source": str(model.source or ""),
            "target": format_target(target),
            "tensors": list(capture.tensors),
        }
        job["shapes"] = [{name: list(shape) for name, shape in shapes.items()} for shapes in capture.shapes]
        with contextlib.closing(Child(Path(scratch), job, format_target(target))) as child:
            start = max(timeout, _BUILD_LIMIT_S if builds else _START_LIMIT_S)
            opened = child.ask(
                {"do": "open"}, start, "loading the model" + (", or building its engine" if builds else "")
            )

            def run(sample: Sample) -> Mapping[str, np.ndarray]:
                file = Path(scratch, "inputs.safetensors")
                write_safetensors(file, sample.arrays)
                request = {"do": "run", "index": sample.index, "name": sample.name}
                child.ask(request, start if builds else timeout, f"sample {sample.name}")
                outputs = read_safetensors(Path(scratch, "outputs.safetensors"))
                return {name: np.array(tensor.load()) for name, tensor in outputs.items()}

            def inspect() -> ExecutedGraph:
                answer = child.ask({"do": "inspect"}, start, "describing what it runs")
                return _graph_from_plain(answer["executed"])

            yield Session(
                run=run,
                disturbs=opened["disturbs"],
                executed=_graph_from_plain(opened["executed"]) if opened["executed"] else None,
                inspect=inspect if opened["inspects"] else None,
                absent=tuple(Skip(**skip) for skip in opened["absent"]),
                environment=opened["environment"],
            )


class Child:
    """The process and its two pipes."""

    def __init__(self, scratch: Path, job: Mapping[str, Any], title: str) -> None:
        self._title = title
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        requests_read, requests_write = os.pipe()
        answers_read, answers_write = os.pipe()
        # -P and our own search path: what lies in the working directory is data, and must not be imported.
        words = [sys.executable, "-P", "-m", "parityscope.backends._worker", str(scratch)]
        self._open = contextlib.ExitStack()
        self._guard = self._open.enter_context(
            run_guarded(
                [*words, str(requests_read), str(answers_write)],
                passed=(requests_read, answers_write),
                environment={
                    **os.environ,
                    IN_CHILD: "1",
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
            )
        )
        os.close(requests_read)
        os.close(answers_write)
        self._requests = os.fdopen(requests_write, "w", encoding="utf-8")
        self._answers = answers_read
        self._pending = b""

    def ask(self, request: Mapping[str, Any], timeout: float, doing: str) -> dict[str, Any]:
        """The answer to a request, within `timeout` seconds.

        Raises:
            ParityError: there is none, or it is a refusal; `doing` says in it what was being done.
        """
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._death_error(doing) from None
        line = self._next_line(timeout)
        if line is None:
            self._guard.end()
            raise ParityError(
                f"{self._title} took longer than {timeout:g} s on {doing}",
                where=last_words(self._guard.log),
                fix="raise the limit (timeout=SECONDS in the target), or find out where it hangs",
                over=True,
            )
        if not line:
            raise self._death_error(doing)
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise ParityError(answer["problem"], where=answer["where"], fix=answer["fix"], failing=answer["failing"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        os.close(self._answers)
        self._open.close()

    def _next_line(self, timeout: float) -> bytes | None:
        """The next answer; None when the time is over, nothing when the child is gone, also in mid-sentence."""
        end = time.monotonic() + timeout
        watched = select.poll()
        watched.register(self._answers, select.POLLIN)
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not watched.poll(1000 * left):
                return None
            block = os.read(self._answers, _BLOCK)
            if not block:
                return b""
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _death_error(self, doing: str) -> ParityError:
        try:
            status = self._guard.process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            how = "stopped answering"
        else:
            how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        fix = "the runtime itself crashed: try another version of it, fewer threads, or a smaller batch"
        if how.endswith("SIGKILL"):
            fix = "out of memory kills with SIGKILL: free some, take a smaller batch, or lower --memory"
        where = last_words(self._guard.log)
        return ParityError(f"{self._title} {how} on {doing}", where=where, fix=fix, over=True)


def _graph_from_plain(plain: Mapping[str, Any]) -> ExecutedGraph:
    layers = tuple(ExecutedLayer(**{**layer, "nodes": tuple(layer["nodes"])}) for layer in plain["layers"])
    return ExecutedGraph(layers=layers, requested=plain["requested"], executed=plain["executed"])
