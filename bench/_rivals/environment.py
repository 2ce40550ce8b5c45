"""The throwaway environment that other people's tools run in: made by pip in the cache, never the project's own.

`prepare()` makes it; `python(...)` runs one of the files of this folder in it. The cache is `PARITYSCOPE_CACHE`/rivals, or
`parityscope/rivals` under `XDG_CACHE_HOME`, or under `~/.cache`. Versions are pinned and installed without their
dependencies, because ModelOpt's are 2 GB of CUDA that AutoCast on a CPU never touches: `PACKAGES` is all it imports,
torch excepted (see `autocast`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from _rivals.timing import cpu_seconds

PACKAGES = (
    "nvidia-modelopt==0.47.0",
    "onnxconverter-common==1.16.0",
    "onnx==1.21.0",
    "onnxruntime==1.24.2",
    "onnx-graphsurgeon==0.6.1",
    "onnx-ir==1.1.0",
    "onnxscript==0.7.2",
    "onnxslim==0.1.98",
    "polygraphy==0.53.6",
    "PuLP==3.3.2",
    "PyYAML==6.0.3",
    "Mako==1.4.3",
    "MarkupSafe==3.0.4",
    "Pygments==2.21.0",
    "annotated-types==0.8.0",
    "colorama==0.4.6",
    "cppimport==26.4.17",
    "filelock==4.2.11",
    "flatbuffers==25.12.19",
    "lief==1.0.0",
    "markdown-it-py==4.3.0",
    "mdurl==0.1.2",
    "ml_dtypes==0.6.0",
    "mpmath==1.3.0",
    "numpy==2.4.6",
    "nvidia-ml-py==13.615.71",
    "packaging==26.3",
    "protobuf==7.36.2",
    "pybind11==3.1.0",
    "pydantic==2.14.3",
    "pydantic_core==2.50.4",
    "regex==2026.11.15",
    "rich==15.0.0",
    "scipy==1.17.1",
    "sympy==1.14.0",
    "tqdm==4.70.1",
    "typing-inspection==0.4.5",
    "typing_extensions==4.16.0",
)
_SHOWN = 150  # characters of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a tool ended: `problem` is empty where it succeeded, else the end of what it said.

    `text` is all that it printed; `seconds` are of CPU.
    """

    problem: str
    text: str
    seconds: float


def interpreter() -> Path:
    """The environment's Python, which may not be there yet."""
    return cache() / "bin" / "python"


def missing() -> str:
    """Why the environment cannot be used, empty if it can."""
    stamp = cache() / "prepared.txt"
    if not interpreter().exists() or not stamp.exists():
        return "not installed; python bench/rivals.py --prepare"
    if stamp.read_text(encoding="utf-8") != "\n".join(PACKAGES):
        return "installed in other versions; python bench/rivals.py --prepare"
    return ""


def prepare() -> str:
    """Makes the environment; gives the reason if it cannot be had."""
    if not missing():
        return ""
    folder = cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(interpreter()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, *PACKAGES]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return _end(done.stderr)
    (folder / "prepared.txt").write_text("\n".join(PACKAGES), encoding="utf-8")
    return ""


def python(script: Path, words: list[str], *, limit_s: float) -> Ran:
    """Runs `script` in the environment, for `limit_s` seconds at most."""
    started = cpu_seconds()
    command = [str(interpreter()), "-W", "ignore", str(script), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s, env=environment)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return Ran(problem=f"stopped after {limit_s:.0f} s", text=text, seconds=cpu_seconds() - started)
    problem = _end(done.stderr) if done.returncode else ""
    return Ran(problem=problem, text=done.stdout + done.stderr, seconds=cpu_seconds() - started)


def cache() -> Path:
    """The folder of the environment, and of what the comparison downloads."""
    own, shared = os.environ.get("PARITYSCOPE_CACHE", ""), os.environ.get("XDG_CACHE_HOME", "")
    if own:
        return Path(own) / "rivals"
    return (Path(shared) if shared else Path.home() / ".cache") / "parityscope" / "rivals"


def _end(message: str) -> str:
    """The last line, without what precedes ONNX Runtime's own words."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["it said nothing"]
    said = re.sub(r"^[\w.]*\.(\w+: )", r"\1", lines[-1])
    said = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", said)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
