"""Holds the adapter's calls (`_tensorrt/api.py`) and the stand-in's facts against type stubs of three versions of TensorRT 10.

`python -m proving.tensorrt_replay.stubs` fetches the packages `tensorrt-stubs` with pip into a scratch folder and checks each.
They are no dependency: they want TensorRT itself, and without it their folder `tensorrt` is an empty package to `import`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from proving.tensorrt_replay.facts import FACTS, has

__all__ = ["VERSIONS", "conforms", "disagreements", "main"]

VERSIONS = ("10.8.0.43.1", "10.11.0.33.1", "10.13.0.35.1")
_PAIRS = {
    "Engine": "ICudaEngine",
    "Context": "IExecutionContext",
    "TypedLayer": "ILayer",
    "Network": "INetworkDefinition",
    "Profile": "IOptimizationProfile",
    "BuilderConfig": "IBuilderConfig",
    "Builder": "Builder",
    "Registry": "IPluginRegistry",
    "Runtime": "Runtime",
}
# Slips of syntax in the stubs, mended in a copy.
_SLIPS = (
    (" in: list", " given: list"),
    ("power: Weights = None, channel_axis", "power: Weights, channel_axis"),
    (
        "shift: Weights = None, scale: Weights = None, power: Weights, ",
        "shift: Weights, scale: Weights, power: Weights, ",
    ),
)


def conforms(text: str, folder: Path) -> str:
    """What mypy finds wrong in using TensorRT's classes of the stub `text` as those that the adapter calls; "" for nothing."""
    text = _mended(text)
    (folder / "tensorrt_ten.pyi").write_text(text, encoding="utf-8")
    lines = ["import tensorrt_ten as trt", f"from parityscope.backends._tensorrt.api import {', '.join(_PAIRS)}"]
    lines += [
        f"def held{number}(one: trt.{theirs}) -> {ours}:\n    return one"
        for number, (ours, theirs) in enumerate(_PAIRS.items())
    ]
    (folder / "conforms.py").write_text("\n".join(lines), encoding="utf-8")
    (folder / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-tensorrt_ten]\nignore_errors = True\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "conforms.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def disagreements(text: str, version: str) -> list[str]:
    """The members of `facts.json` that the stub has and the facts deny its version, or the other way round."""
    members: dict[str, set[str]] = {}
    for each in ast.parse(_mended(text)).body:
        if isinstance(each, ast.ClassDef):
            names = {one.name for one in each.body if isinstance(one, ast.FunctionDef)}
            names |= {
                one.target.id
                for one in each.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            members[each.name] = names
    found = []
    for member in FACTS["members"]:
        owner, _, name = member.partition(".")
        held = owner in members and (not name or name in members[owner])
        if held != has(member, version, "tensorrt"):
            found.append(f"{member} is {'there' if held else 'not there'}")
    return found


def _mended(text: str) -> str:
    for slip, mended in _SLIPS:
        text = text.replace(slip, mended)
    return text


def main() -> int:
    """Checks every version of `VERSIONS`; 1 if the adapter or the facts do not conform to one."""
    status = 0
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as scratch:
            fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
            subprocess.run([*fetch, f"tensorrt-stubs=={version}"], check=True)
            (wheel,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as held:
                text = held.read("tensorrt_bindings/tensorrt.pyi").decode()
            problem = "; ".join(disagreements(text, version.rpartition(".")[0])) or conforms(text, Path(scratch))
        print(f"tensorrt-stubs {version}: {problem or 'conforms'}")
        status |= bool(problem)
    return status


if __name__ == "__main__":
    sys.exit(main())
