"""The child's side of `_child.py`: `python -m parityscope.backends._worker SCRATCH REQUESTS_FD ANSWERS_FD`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from parityscope.backends import Capture, backend_named
from parityscope.backends.targets import parse_target
from parityscope.case import Sample
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.forking import end_with_parent
from parityscope.trace import read_safetensors, write_safetensors

if TYPE_CHECKING:
    from parityscope.backends import Session


def answer_requests(scratch: Path, requests: IO[str], answers: IO[str]) -> None:
    """Answers requests until the parent closes its pipe."""
    job = json.loads((scratch / "job.json").read_text(encoding="utf-8"))
    with contextlib.ExitStack() as stack:
        session: Session | None = None
        for line in requests:
            request = json.loads(line)
            try:
                if session is None:
                    session = stack.enter_context(_open_job(job))
                answer = _answer_request(session, scratch, request)
            except ParityError as error:
                answer = {"problem": error.problem, "where": error.where, "fix": error.fix, "failing": error.failing}
            except MemoryError:
                fix = "free some, take a smaller batch, or lower --memory"
                answer = {"problem": f"{job['target']} ran out of memory", "where": "", "fix": fix, "failing": True}
            except OSError as error:
                problem = f"{job['target']} cannot hand over its tensors: {error.strerror or error}"
                fix = "free some disk space, or name another folder for scratch files: TMPDIR=/path"
                answer = {"problem": problem, "where": str(error.filename or scratch), "fix": fix, "failing": False}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _open_job(job: dict[str, Any]) -> contextlib.AbstractContextManager[Session]:
    target = parse_target(job["target"])
    shapes = tuple({name: tuple(shape) for name, shape in each.items()} for each in job["shapes"])
    capture = Capture(tensors=tuple(job["tensors"]), shapes=shapes)
    model = replace(load_model(job["model"]), source=Path(job["source"]) if job["source"] else None)
    return backend_named(target.backend).open(model, target, capture)


def _answer_request(session: Session, scratch: Path, request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "open":
            return _describe_session(session)
        case "inspect" if session.inspect:
            return {"executed": asdict(session.inspect())}
    return _run_sample(session, scratch, request)


def _describe_session(session: Session) -> dict[str, Any]:
    return {
        "disturbs": session.disturbs,
        "inspects": session.inspect is not None,
        "executed": asdict(session.executed) if session.executed else None,
        "absent": [asdict(skip) for skip in session.absent],
        "environment": dict(session.environment),
    }


def _run_sample(session: Session, scratch: Path, request: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: tensor.load() for name, tensor in read_safetensors(scratch / "inputs.safetensors").items()}
    sample = Sample(index=request["index"], name=request["name"], arrays=arrays)
    write_safetensors(scratch / "outputs.safetensors", session.run(sample))
    return {"done": request["index"]}


if __name__ == "__main__":
    end_with_parent()
    with os.fdopen(int(sys.argv[2]), "r", encoding="utf-8") as _requests:  # noqa: SIM117 - two pipes, two lines
        with os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as _answers:
            answer_requests(Path(sys.argv[1]), _requests, _answers)
