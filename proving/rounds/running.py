"""Runs `parityscope diagnose` on the cases, a child process each, and keeps what it said: one line of JSON a case.

Only a case's folder and arguments reach the child; the truth lies elsewhere. A file that is there is gone on with.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

_LIMIT_S = 300.0
_SCREEN = 60  # lines: chosen, what a terminal shows first
_KEPT = ("code", "role", "title", "site", "claim", "confidence", "share", "status")


def run_cases(folder: Path, out: Path, processes: int, wanted: list[str]) -> None:
    """All cases of `folder`, or those wanted, that `out` does not have; `processes` at a time."""
    had = {json.loads(line)["case"] for line in out.read_text("utf-8").splitlines()} if out.exists() else set()
    paths = {f"{path.parents[2].name}-{path.parent.name}": path for path in sorted(folder.glob("*/cases/*/case.json"))}
    left = [name for name in paths if name not in had and (not wanted or name in wanted)]
    with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool, out.open("a", encoding="utf-8") as sink:
        for future in as_completed([pool.submit(partial(run_case, name, paths[name])) for name in left]):
            said = future.result()
            sink.write(json.dumps(said, ensure_ascii=False) + "\n")
            sink.flush()
            print(said["case"], said["exit"], said["verdict"], f"{said['wall_s']:.1f} s", flush=True)


def run_case(name: str, path: Path) -> dict[str, Any]:
    """What `diagnose` says of one case: exit code, first screen, verdict and findings, wall and processor seconds."""
    case = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="round-") as held:
        study = Path(held) / "study"
        command = [
            sys.executable,
            "-m",
            "parityscope",
            "diagnose",
            *case["arguments"],
            "--study",
            str(study),
            "--quiet",
        ]
        begun = time.monotonic()
        child = subprocess.Popen(
            command,
            cwd=path.parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "140"},
        )
        try:
            said, _ = child.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            said, _ = child.communicate()
        wall = time.monotonic() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        document = study / "study.json"
        found = json.loads(document.read_text(encoding="utf-8")) if document.exists() else {}
    return {
        "case": name,
        "exit": child.returncode,
        "wall_s": wall,
        "processor_s": used.ru_utime + used.ru_stime,
        "screen": said.splitlines()[:_SCREEN],
        "verdict": found.get("verdict", ""),
        "headline": found.get("headline", ""),
        "findings": [{key: one[key] for key in _KEPT if key in one} for one in found.get("findings", [])],
    }
