"""Holds the adapter's calls (`tensorrt/api.py`) and the stand-in's facts against what TensorRT's Python interface really has.

`python -m proving.tensorrt_replay.stubs` (`make stubs`) fetches the packages of `stubs.txt`, type stubs of three versions of
TensorRT 10 pinned by hash, with pip into a scratch folder and checks each; where they cannot be fetched it says why, and nothing
is checked. They are no dependency: without TensorRT their folder `tensorrt` is an empty package to `import`.

`python -m proving.tensorrt_replay.stubs CLONE` reads the binding's own source (pybind11, python/src) and trtexec's at the tag of
every release from 8.6 to 11.1 in a clone of github.com/NVIDIA/TensorRT: members and options by name, without their types.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends.tensorrt import api
from proving.tensorrt_replay.facts import FACTS, has
from proving.tensorrt_replay.trtexec import OPTIONS, is_known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PINNED = Path(__file__).with_name("stubs.txt")
_PAIRS = {
    "Engine": "ICudaEngine",
    "ExecutionContext": "IExecutionContext",
    "TypedLayer": "ILayer",
    "NetworkDefinition": "INetworkDefinition",
    "OptimizationProfile": "IOptimizationProfile",
    "BuilderConfig": "IBuilderConfig",
    "Builder": "Builder",
    "Registry": "IPluginRegistry",
    "Runtime": "Runtime",
}
# 11 still has it for the safety runtime, whose lines are not ours.
_NOT_OURS = {"--int8"}
# Slips of syntax in the stubs, mended in a copy.
_SLIPS = (
    (" in: list", " given: list"),
    ("power: Weights = None, channel_axis", "power: Weights, channel_axis"),
    (
        "shift: Weights = None, scale: Weights = None, power: Weights, ",
        "shift: Weights, scale: Weights, power: Weights, ",
    ),
)


def conforms(texts: Mapping[str, str], folder: Path) -> str:
    """What mypy finds wrong in using the classes of TensorRT in the stubs, by version, as the adapter does; "" for nothing."""
    # A copy by itself: mypy would read half of the package to follow an import of it.
    (folder / "api.py").write_text(Path(api.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    lines = [f"from api import {', '.join(_PAIRS)}"]
    settings = ["[mypy]", "strict = True"]
    for version, text in texts.items():
        module = f"tensorrt_{version.replace('.', '_')}"
        (folder / f"{module}.pyi").write_text(_mended(text), encoding="utf-8")
        lines.append(f"import {module}")
        lines += [
            f"def {ours}_{module}(one: {module}.{theirs}) -> {ours}:\n    return one" for ours, theirs in _PAIRS.items()
        ]
        settings += [f"[mypy-{module}]", "ignore_errors = True"]
    (folder / "conforms.py").write_text("\n".join(lines), encoding="utf-8")
    (folder / "mypy.ini").write_text("\n".join(settings), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "conforms.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def disagreements(members: Mapping[str, set[str]], version: str) -> list[str]:
    """The members of `facts.json` that a binding (`members` of each class) has and the facts deny its version, or the other
    way round; and what the adapter calls without asking that the binding has not."""
    found = []
    for member in FACTS["members"]:
        owner, _, name = member.partition(".")
        held = owner in members and (not name or name in members[owner])
        if held != has(member, version, "tensorrt"):
            found.append(f"{member} is {'there' if held else 'not there'}")
    for ours, theirs in _PAIRS.items():
        called = getattr(api, ours)
        names = {*vars(called), *vars(called).get("__annotations__", {})}
        lacks = {name for name in names if not name.startswith("_")} - members[theirs]
        found += [
            f"{theirs}.{name} is called" for name in sorted(lacks) if has(f"{theirs}.{name}", version, "tensorrt")
        ]
    return found


def members_of_stub(text: str) -> dict[str, set[str]]:
    """The members of each class in a type stub."""
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
    return members


def members_of_binding(clone: Path, tag: str) -> dict[str, set[str]]:
    """The members of each class and enumeration that the binding's source declares at a tag of the clone."""
    members: dict[str, set[str]] = {}
    for path in _git(clone, "ls-tree", "-r", "--name-only", tag, "python/src/").split():
        if not path.endswith(".cpp"):
            continue
        text = re.sub(r"//[^\n]*", "", _git(clone, "show", f"{tag}:{path}"))
        for part in re.split(r"(?=py::(?:class_|enum_)\s*<)", text):
            title = re.match(r'py::(?:class_|enum_)\s*<.*?>\s*\w*\s*[({]\s*[\w:]+\s*,\s*"(\w+)"', part, re.DOTALL)
            if title:
                members.setdefault(title[1], set()).update(re.findall(r'\.(?:def\w*|value)\s*\(\s*"(\w+)"', part))
    return members


def disagreements_of_trtexec(clone: Path, tag: str) -> list[str]:
    """The options of `trtexec.py` that its source parses at a tag and the table denies that version, or the other way round."""
    text = _git(clone, "show", f"{tag}:samples/common/sampleOptions.cpp")
    held = {name: f'"{name}"' in text for name in {one[0] for one in OPTIONS} - _NOT_OURS}
    return [
        f"trtexec {'has' if has_it else 'has no'} {name}"
        for name, has_it in held.items()
        if has_it != is_known(name, tag[1:])
    ]


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True, text=True).stdout


def _mended(text: str) -> str:
    for slip, mended in _SLIPS:
        text = text.replace(slip, mended)
    return text


def main(words: Sequence[str]) -> int:
    """Checks every version of `stubs.txt`, or every release in a clone; 1 if the adapter or the facts do not conform to one."""
    if words:
        clone = Path(words[0])
        wrong = {
            tag: disagreements(members_of_binding(clone, tag), tag[1:]) + disagreements_of_trtexec(clone, tag)
            for tag in FACTS["releases"]["tags"]
        }
        for tag, told in wrong.items():
            print(f"{tag}: {'; '.join(told) or 'the facts agree'}")
        return int(any(wrong.values()))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            texts = _fetched(Path(scratch))
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "pip fails").strip().splitlines()[-1].strip()
            other = said.startswith("Got ")  # what came is not what was pinned
            print(f"{'refused' if other else 'skipped'}: tensorrt-stubs cannot be fetched: {said}")
            return int(other)
        found = {version: disagreements(members_of_stub(text), version) for version, text in texts.items()}
        problem = conforms(texts, Path(scratch))
    for version, told in found.items():
        print(f"tensorrt-stubs {version}: {'; '.join(told) or 'the facts agree'}")
    print(problem or f"the adapter conforms to {', '.join(texts)}")
    return int(bool(problem) or any(found.values()))


def _fetched(folder: Path) -> dict[str, str]:
    """The stub of each pinned package by TensorRT's version."""
    texts = {}
    for line in PINNED.read_text(encoding="utf-8").splitlines():
        version = line.partition("==")[2].partition(" ")[0]
        (folder / "one.txt").write_text(line, encoding="utf-8")
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        fetch += ["--require-hashes", "--requirement", "one.txt", "--dest", version]
        subprocess.run(fetch, check=True, cwd=folder, capture_output=True, text=True)
        (wheel,) = (folder / version).glob("*.whl")
        with zipfile.ZipFile(wheel) as held:
            texts[version.rpartition(".")[0]] = held.read("tensorrt_bindings/tensorrt.pyi").decode()
    return texts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
