"""What names tell of the code: functions of one word, class names that mean several things, and modules that import in a circle.

    python bench/names.py [--root CHECKOUT] [FOLDER ...]

Functions named by one word say what they do or what they give, seldom both ("verb and object" is the habit of the house); those
whose name Python fixes are left out. A class name that stands in two files means two things. Imports inside functions count,
imports for types alone do not. Files are read as text, which takes a tenth of the time that parsing takes.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1]
_FUNCTION = re.compile(r"^ *(?:async )?def (\w+)", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_IMPORT = re.compile(r"^ *from parityscope\.([\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_TYPES_ONLY = re.compile(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)*", re.MULTILINE)


class Names(NamedTuple):
    """What was counted."""

    functions: int
    of_one_word: int
    repeated_classes: dict[str, list[str]]
    circles: list[tuple[str, ...]]

    @property
    def share(self) -> float:
        """The part of the functions that is named by one word."""
        return self.of_one_word / self.functions if self.functions else 0.0


def count_names(root: Path = HERE, folders: tuple[str, ...] = ()) -> Names:
    """Counts in the package, or in these folders and files of it."""
    source = root / "src" / "parityscope"
    paths = sorted(path for path in source.rglob("*.py") if not folders or _is_below(path, source, folders))
    functions: list[str] = []
    classes: dict[str, list[str]] = defaultdict(list)
    imports: dict[str, set[str]] = {}
    for path in paths:
        text = _TYPES_ONLY.sub("", path.read_text(encoding="utf-8"))
        name = path.relative_to(source).with_suffix("").as_posix()
        functions += [found for found in _FUNCTION.findall(text) if not found.startswith("__")]
        for found in _CLASS.findall(text):
            classes[found].append(name)
        imports[name] = set(_imported(text))
    return Names(
        functions=len(functions),
        of_one_word=sum("_" not in found.strip("_") for found in functions),
        repeated_classes={name: places for name, places in sorted(classes.items()) if len(places) > 1},
        circles=_circles(imports),
    )


def _is_below(path: Path, source: Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(source / folder) for folder in folders)


def _imported(text: str) -> list[str]:
    """The modules of the package that running a file imports, as paths without suffix."""
    found = []
    for module, block, line in _IMPORT.findall(text):
        home = module.replace(".", "/")
        names = re.findall(r"\w+", re.sub(r" as \w+", "", block or line))
        found += [home, *(f"{home}/{one}" for one in names)]
        if any(not one.islower() for one in names):
            found.append(f"{home}/__init__")
    return found


def _circles(imports: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """The groups of modules that import each other, by Tarjan's strongly connected components."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(imports[name] & imports.keys()):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    for name in imports:
        if name not in order:
            visit(name)
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE)
    parser.add_argument("folders", nargs="*", help="study, cli, diagnosis.py ... [the whole package]")
    asked = parser.parse_args()
    found = count_names(asked.root, tuple(asked.folders))
    print(f"{found.of_one_word} of {found.functions} functions are named by one word ({found.share:.1%})")
    print(f"{len(found.repeated_classes)} class names stand in more than one file")
    for name, places in found.repeated_classes.items():
        print(f"  {name}: {', '.join(places)}")
    print(f"{len(found.circles)} circles of imports")
    for circle in found.circles:
        print(f"  {', '.join(circle)}")


if __name__ == "__main__":
    main()
