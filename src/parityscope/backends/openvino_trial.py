"""Which tensors OpenVINO can be asked for: marking one as an output may crash its compiler, and the process with it.

What is to be marked is first compiled in a process that may die, and again without one half or the other until the tensors are
found that it dies of. A helper imports OpenVINO once and forks for each trial, before
OpenVINO has any threads: a trial costs a compilation and some milliseconds. `python -m parityscope.backends.openvino_trial` is
the helper's side: lines of JSON in, the way in which each trial ended out.

Measured: OpenVINO 2026.4.1 on x86-64 ends by SIGSEGV in `compile_model` when the input, or an inner tensor, of a layer
normalization that is written in single operators is an output too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from parityscope.backends._openvino_marks import try_marks
from parityscope.backends.programs import signal_name
from parityscope.records import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["CompilingHelper", "bearable_marks", "death_of_compiling", "find_bearable_marks"]

_LIMIT_S = 600  # chosen, as for a child that loads a model: beyond this it hangs
_TRIALS = 64  # chosen: finds five tensors among 200; each costs a compilation


@functools.lru_cache(maxsize=16)
def bearable_marks(
    path: Path, digest: str, settings: tuple[tuple[str, Any], ...], wanted: tuple[tuple[str, str], ...]
) -> tuple[tuple[tuple[str, str], ...], tuple[Skip, ...]]:
    """Those of `wanted` (tensor, format) whose marking OpenVINO's compiler survives, and a Skip for each other."""
    del digest  # another file of the same path is another question
    deaths: dict[str, str] = {}
    stored = dict(wanted)

    def survives(names: Sequence[str]) -> bool:
        death = death_of_compiling(path, dict(settings), {name: stored[name] for name in names})
        deaths.update(dict.fromkeys(names, death) if death else {})
        return not death

    kept, lost = find_bearable_marks(list(stored), survives)
    skips = tuple(
        Skip(
            what=f"tensor {name}",
            reason=f"OpenVINO's compiler crashes ({deaths.get(name, 'not tried alone')}) when it is an output too",
            fix="another version of OpenVINO may not; observe=all marks every tensor, and changes the fusion",
        )
        for name in lost
    )
    return tuple((name, stored[name]) for name in kept), skips


def find_bearable_marks(names: Sequence[str], survives: Callable[[Sequence[str]], bool]) -> tuple[list[str], list[str]]:
    """Those of `names` that can be marked together, and the others; halves are tried until single ones are left.

    Whatever is kept was tried as it is returned. What was not tried when the trials are spent is among the others.
    """
    kept: list[str] = []
    lost: list[str] = []
    stack = [list(names)]
    used = 0
    while stack:
        block = stack.pop()
        if used >= _TRIALS:
            lost.extend(block)
            continue
        used += 1
        if survives([*kept, *block]):
            kept.extend(block)
        elif len(block) == 1:
            lost.extend(block)
        else:
            stack += [block[len(block) // 2 :], block[: len(block) // 2]]
    return kept, lost


def death_of_compiling(path: Path, settings: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    """How OpenVINO dies of compiling the model with `wanted` marked ("SIGSEGV"); "" where it does not.

    `wanted` maps tensors to the format in which they are read ("" leaves it to OpenVINO). An error that is raised is no death.
    """
    status = CompilingHelper.ask({"path": str(path), "settings": dict(settings), "wanted": dict(wanted)})
    return signal_name(-status) if status < 0 else ""


class CompilingHelper:
    """The helper process, started when it is first needed and kept for the next trial."""

    process: subprocess.Popen[str] | None = None

    @classmethod
    def ask(cls, job: Mapping[str, Any]) -> int:
        """How the trial's process ended: an exit code, or minus a signal."""
        if cls.process is None or cls.process.poll() is not None:
            cls.close()
            cls.process = cls.start_process()
            atexit.register(cls.close)
        own = cls.process
        if own.stdin is None or own.stdout is None:
            raise ValueError("the helper has no pipes")
        try:
            own.stdin.write(json.dumps(job) + "\n")
            own.stdin.flush()
            line = own.stdout.readline()
        except BrokenPipeError:  # the helper itself is gone, which must not look like a reader of our output who is
            line = ""
        return int(line) if line else -int(signal.SIGKILL)

    @staticmethod
    def start_process() -> subprocess.Popen[str]:
        """A fresh process of this file, which forks for each trial."""
        search = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "parityscope.backends.openvino_trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Threads of NumPy's own would be lost in the fork.
            env={**os.environ, "PYTHONPATH": search, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    @classmethod
    def close(cls) -> None:
        """Ends the process, if there is one."""
        if cls.process is not None:
            for pipe in (cls.process.stdin, cls.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # what is left to write, to a helper that is gone
                        pipe.close()
            cls.process.wait()
            cls.process = None


def _answer_trials() -> None:
    """Answers trials until the pipe is closed."""
    import resource  # there is none on Windows, where this module is imported all the same

    import openvino  # noqa: F401 - the forks find it loaded

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(_LIMIT_S)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try_marks(**json.loads(line))
            os._exit(0)  # without a cleanup that might crash too
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _answer_trials()
