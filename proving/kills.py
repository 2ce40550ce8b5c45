"""Ends commands at random moments: `python -m proving.kills [--count N] [--processes N] [--seed N] [--json FILE]`; exit 0 or 1.

Each trial starts one of five commands on a fresh copy of the same files, ends it at a random moment (SIGKILL, SIGTERM, SIGINT, or
SIGKILL and then the last written file cut to a part of its length, as a machine without power may leave it) and holds that
what is there under the result's name is whole, absent, or refused as damaged by what reads it; that the same command, started
again, ends as an undisturbed run does (a damaged result is taken away first, as its error says); and that then no process, no
temporary file and no part of a result is left, and no file of anybody else was changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from proving.home import marked_processes, write_files
from proving.spreading import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAYS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT, "power cut": signal.SIGKILL}
PATIENCE_S = 600.0  # chosen: a command of seconds that takes longer hangs
_MARK = "PARITYSCOPE_KILLS_MARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line, the results that it writes, and what of them must be the same after every way to get there."""

    name: str
    words: tuple[str, ...]
    results: tuple[str, ...]
    essence: Callable[[Path], Any]

    def reader(self, result: str) -> tuple[str, ...]:
        """The command that reads a result; what it writes itself has a name in `_READ`."""
        if result == "study":
            return ("report", result)
        return ("lint", result) if result.endswith(".onnx") else (*_REPAIR, "--plan", result, "-o", _READ[0])


def _of_study(folder: Path) -> Any:
    held = json.loads((folder / "study" / "study.json").read_text(encoding="utf-8"))
    findings = [(one["code"], one["role"], one["claim"]) for one in held["findings"]]
    outputs = [(one["name"], one["rel_l2"]) for one in held["outputs"]]
    return held["verdict"], findings, outputs


def _of_pipeline(folder: Path) -> Any:
    held = json.loads((folder / "study" / "pipeline.json").read_text(encoding="utf-8"))
    return held["verdict"], [one["name"] for one in held["stages"]], _of_study(folder)


def _of_verification(folder: Path) -> Any:
    held = json.loads((folder / "study" / "study.json").read_text(encoding="utf-8"))
    return held["verdict"]


def _of_repair(folder: Path) -> Any:
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("fixed.onnx", "fixed.plan.toml")]


def _of_prediction(folder: Path) -> Any:
    return json.loads((folder / "predicted.json").read_text(encoding="utf-8"))["formats"]


_ON = ("--inputs", "samples", "--quiet")
_REPAIR = ("repair", "model.onnx", *_ON)
_READ = ("read.onnx", "read.plan.toml")
COMMANDS = (
    Command(
        name="diagnose",
        words=("diagnose", "model.onnx", "--candidate", "ort?model=deployed.onnx&isolate=on", *_ON, "--study", "study"),
        results=("study",),
        essence=_of_study,
    ),
    Command(
        name="diagnose a program",
        words=(
            "diagnose",
            "model.onnx",
            "--candidate",
            f"command?run={quote(f'{sys.executable} infer.py')}",
            *_ON,
            "--study",
            "study",
        ),
        results=("study",),
        essence=_of_study,
    ),
    Command(
        name="pipeline",
        words=("pipeline", "chain.toml", "--study", "study", "--quiet"),
        results=("study",),
        essence=_of_pipeline,
    ),
    Command(
        name="verify",
        words=(
            *("verify", "model.onnx", "--before", "sim:f16", "--after", "ort?optimization=disabled", *_ON),
            *("--study", "study", "--budget", "rel_l2=0.01", "--time", "2s"),
        ),
        results=("study",),
        essence=_of_verification,
    ),
    Command(
        name="repair",
        words=(*_REPAIR, "--low", "f16", "--budget", "rel_l2=0.01", "-o", "fixed.onnx"),
        results=("fixed.onnx", "fixed.plan.toml"),
        essence=_of_repair,
    ),
    Command(
        name="predict",
        words=("predict", "model.onnx", *_ON, "--formats", "f16,bf16", "-o", "predicted.json"),
        results=("predicted.json",),
        essence=_of_prediction,
    ),
)


@dataclass(slots=True, kw_only=True)
class Trial:
    """A command that is ended, and what was wrong then."""

    command: Command
    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    problems: list[str] = field(default_factory=list)
    left: str = ""  # what the end left under the result's name

    @property
    def home(self) -> Path:
        """Where the command works."""
        return self.folder / "home"

    def prepare(self) -> None:
        """Writes the command's files, and files of somebody else beside them and among the temporary ones."""
        for name in ("home", "temporary/parityscope-somebody", "others"):
            (self.folder / name).mkdir(parents=True)
        write_files(self.home)
        for name in ("others/kept.bin", "temporary/parityscope-somebody/kept.bin", "home/kept.npz.part"):
            (self.folder / name).write_bytes(b"of somebody else")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`parityscope` as a shell starts it."""
        environment = {**os.environ, "TMPDIR": str(self.folder / "temporary"), _MARK: self.mark, "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "parityscope", *words],
            cwd=self.home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """(exit code, what was said)."""
        process = self.start(*words)
        told, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, told + said

    def processes(self) -> list[int]:
        """The living processes that this trial's commands started."""
        return marked_processes(_MARK, self.mark)

    def remains(self) -> list[str]:
        """Every file and folder that is neither a result nor what was there before."""
        results = {self.home / name for name in self.command.results}
        paths = (*self.home.iterdir(), *(self.folder / "temporary").iterdir())
        return [str(path.relative_to(self.folder)) for path in paths if path not in results and path.name not in _OURS]

    def clear(self) -> None:
        """Takes the results away."""
        for name in self.command.results:
            path = self.home / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def hold(self, true: object, problem: str) -> None:
        if not true:
            self.problems.append(problem)

    def check_nothing_left(self) -> None:
        end = time.monotonic() + 30
        while (living := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        self.hold(not living, f"{len(living)} processes left over")
        self.hold(not self.remains(), f"left over: {', '.join(self.remains())}")

    def check_others(self, before: dict[str, str]) -> None:
        changed = [name for name, digest in before.items() if _digest_of(self.folder / name) != digest]
        self.hold(not changed, f"changed files of others: {', '.join(changed)}")


_OURS = {"samples", "model.onnx", "deployed.onnx", "chain.toml", "infer.py", "kept.npz.part", "parityscope-somebody"}


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "gone"


def _digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): _digest_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def _prepared(command: Command) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="kills-") as held:
        trial = Trial(command=command, folder=Path(held))
        trial.prepare()
        try:
            yield trial
        finally:
            for process in trial.processes():
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)


def run_undisturbed(command: Command) -> tuple[int, Any, float]:
    """(exit code, essence, seconds) of a run that nobody disturbs.

    Raises:
        RuntimeError: it does not end as it should.
    """
    with _prepared(command) as trial:
        start = time.monotonic()
        status, said = trial.run(*command.words)
        seconds = time.monotonic() - start
        trial.check_nothing_left()
        if status not in {0, 1, 3} or trial.problems:
            raise RuntimeError(f"{command.name}: exit {status}, {trial.problems}: {said}")
        return status, command.essence(trial.home), seconds


def run_trial(command: Command, way: str, moment: float, cut: float, wanted: tuple[int, Any]) -> Trial:
    """Ends a command `moment` seconds after its start, then holds all that must hold.

    Args:
        command: What is run.
        way: A key of `WAYS`.
        moment: In seconds.
        cut: The part in [0, 1) of the last written file that a power cut leaves.
        wanted: The exit code and the essence of an undisturbed run.
    """
    with _prepared(command) as trial:
        before = _digests(trial.folder)
        process = trial.start(*command.words)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(WAYS[way])
        _, said = process.communicate(timeout=PATIENCE_S)
        ended = process.returncode not in {-WAYS[way], 130}  # it was faster
        if ended and way != "power cut":
            trial.hold(
                process.returncode == wanted[0], f"exit {process.returncode} though it was not ended: {said[-300:]}"
            )
        trial.hold("Traceback" not in said, f"a traceback: {said[-300:]}")
        if way == "power cut":
            _cut_last(trial, before, cut)
        if trial.left != "damaged":
            trial.left = "damaged" if _is_damaged(trial, wanted) else "whole" if _is_there(trial) else "absent"
        if trial.left == "damaged" or ended or _is_there(trial):
            trial.clear()
        status, said = trial.run(*command.words)
        if status == 2 and "damaged" in said:  # what was to be resumed is damaged, and named so
            trial.left += ", then a damaged part"
            shutil.rmtree(trial.home / ".study.part", ignore_errors=True)
            status, said = trial.run(*command.words)
        trial.hold(status == wanted[0], f"again: exit {status} instead of {wanted[0]}: {said[-400:]}")
        if status == wanted[0]:
            trial.hold(command.essence(trial.home) == wanted[1], "again: another result than undisturbed")
        trial.check_nothing_left()
        trial.check_others(before)
        return trial


def _is_there(trial: Trial) -> bool:
    return any((trial.home / name).exists() for name in trial.command.results)


def _is_damaged(trial: Trial, wanted: tuple[int, Any]) -> bool:
    """Whether what lies there is refused by what reads it; what is read although it is not whole is a problem."""
    there = [name for name in trial.command.results if (trial.home / name).exists()]
    if not there:
        return False
    if trial.command.name == "predict":
        try:
            return bool(trial.command.essence(trial.home) != wanted[1])
        except ValueError:
            return True
    for name in there:
        status, said = trial.run(*trial.command.reader(name))
        for path in (trial.home / read for read in _READ):
            path.unlink(missing_ok=True)
        if status == 2:
            trial.hold("fix:" in said and "Traceback" not in said, f"a damaged result without one error: {said[-300:]}")
            return True
    if len(there) == len(trial.command.results):  # where some are missing, the next run writes all of them
        trial.hold(trial.command.essence(trial.home) == wanted[1], "another result than undisturbed, and not refused")
    return False


def _cut_last(trial: Trial, before: dict[str, str], cut: float) -> None:
    """Cuts the file that was written last, wherever it lies."""
    written = [
        path
        for path in trial.folder.rglob("*")
        if path.is_file() and not path.is_symlink() and str(path.relative_to(trial.folder)) not in before
    ]
    if not written:
        return
    last = max(written, key=lambda path: path.stat().st_mtime_ns)
    os.truncate(last, int(cut * last.stat().st_size))
    trial.left = f"cut {last.name}"


def main() -> int:
    """Exit code 1 if a promise was broken."""
    asked = _arguments()
    told: list[dict[str, Any]] = []

    def tell(outcome: dict[str, Any]) -> None:
        told.append(outcome)
        words = f"{outcome['number']:4} {outcome['command']:18} {outcome['way']:9} {outcome['moment']:6.2f} s"
        print(f"{words}  {outcome['left']}  {'; '.join(outcome['problems'])}", flush=True)

    processes = max(1, min(asked.processes, asked.count))
    begun = time.monotonic()
    ended = spread(lambda first, say: _work(range(first, asked.count, processes), asked, say), processes, tell)
    _print_table(told, time.monotonic() - begun)
    for problem in ended:
        print(f"FAILED {problem}")
    if asked.json:
        told.sort(key=lambda one: one["number"])
        Path(asked.json).write_text(json.dumps(told, indent=1), encoding="utf-8")
    return int(bool(ended) or len(told) < asked.count or any(one["problems"] for one in told))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proving.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1, help="how many work side by side, each on two cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="append", help="only the command of this name; repeatable")
    parser.add_argument("--json", help="a file for the outcome of every trial")
    return parser.parse_args()


def _work(numbers: range, asked: argparse.Namespace, say: Callable[[Any], None]) -> None:
    """The trials of these numbers; what each draws depends on the seed and its number alone."""
    commands = [one for one in COMMANDS if not asked.command or one.name in asked.command]
    undisturbed: dict[str, tuple[int, Any, float]] = {}
    for number in numbers:
        # The turns of all commands go by before one comes again, whatever the processes divide them into.
        command, draw = commands[number % len(commands)], random.Random(f"{asked.seed} {number}")
        if command.name not in undisturbed:
            undisturbed[command.name] = run_undisturbed(command)
        status, essence, seconds = undisturbed[command.name]
        way = draw.choice(list(WAYS))
        # Up to a little after it should have ended; half of the moments lie where results are being written.
        moment, cut = draw.uniform(*draw.choice(((0.1, 1.0), (0.75, 1.1)))) * seconds, draw.random()
        trial = run_trial(command, way, moment, cut, (status, essence))
        say(
            {
                "number": number,
                "command": command.name,
                "way": way,
                "moment": moment,
                "left": trial.left,
                "problems": trial.problems,
            }
        )


def _print_table(told: list[dict[str, Any]], seconds: float) -> None:
    print(f"\n| command | kills | {' | '.join(WAYS)} | absent | whole | damaged or cut | with problems |")
    print("| --- " * (len(WAYS) + 6) + "|")
    for name in [*dict.fromkeys(one["command"] for one in sorted(told, key=lambda one: one["number"])), "all"]:
        held = [one for one in told if name in {one["command"], "all"}]
        ways = " | ".join(str(sum(one["way"] == way for one in held)) for way in WAYS)
        left = Counter(one["left"].partition(" ")[0].strip(",") for one in held)
        rest = len(held) - left["absent"] - left["whole"]
        problems = sum(bool(one["problems"]) for one in held)
        print(f"| {name} | {len(held)} | {ways} | {left['absent']} | {left['whole']} | {rest} | {problems} |")
    kept = sum(not one["problems"] for one in told)
    print(f"\n{kept} of {len(told)} kills ended as promised, in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
