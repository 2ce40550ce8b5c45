"""Draws how an examination is built: the modules on its way, what each imports, and the records that carry it.

    python bench/house.py [--root CHECKOUT] [-o FILE.svg]

Rows are floors: a module stands above all that it imports, so that two modules that import each other would be seen (red). A
module's number is its lines. Orange ones define a record that carries what is known of an examination; how many parameters of
functions take it stands below. Imports for types alone are left out.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

PLACES = (
    "cli",
    "study",
    "diagnosis.py",
    "examination.py",
    "bench.py",
    "request.py",
    "checks/__init__.py",
    "report/__init__.py",
)
# What carries an examination, before and after.
BOXES = (
    "Shared",
    "Question",
    "Settings",
    "Asked",
    "Known",
    "Scene",
    "Bench",
    "Parts",
    "Posed",
    "Search",
    "Causes",
    "Request",
)
BOXES += ("Delivery", "Examination", "Answers")
WAY = re.compile(
    r"^(cli/(_shared|_requesting|_finish|_delivery|diagnose)|study/|diagnosis|examination|bench|request|checks/__init__)"
)
WIDTH, HEIGHT, GAP_X, GAP_Y, ROW = 150, 34, 12, 40, 8


class Module(NamedTuple):
    """A file: its lines, what it imports, and the boxes that it defines."""

    lines: int
    imports: frozenset[str]
    boxes: tuple[str, ...]


def read_modules(root: Path) -> tuple[dict[str, Module], dict[str, int]]:
    """The modules on the way of an examination, and how many parameters take each box."""
    source = root / "src" / "parityscope"
    files = {
        path.relative_to(source).with_suffix("").as_posix(): path
        for place in PLACES
        for path in ([source / place] if place.endswith(".py") else sorted((source / place).glob("*.py")))
        if path.exists()
    }
    files = {name: path for name, path in files.items() if WAY.match(name) and name != "study/__init__"}
    taken: dict[str, int] = {}
    modules = {}
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found = {one for one in _imported(tree) if one in files and one != name}
        boxes = tuple(one.name for one in tree.body if isinstance(one, ast.ClassDef) and one.name in BOXES)
        modules[name] = Module(lines=text.count("\n"), imports=frozenset(found), boxes=boxes)
        for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
            for argument in (*function.args.args, *function.args.kwonlyargs):
                words = re.findall(r"\w+", ast.unparse(argument.annotation)) if argument.annotation else []
                for box in {*words} & {*BOXES}:
                    taken[box] = taken.get(box, 0) + 1
    return modules, taken


def _imported(tree: ast.AST) -> set[str]:
    """The modules that a file imports to run them, as paths without suffix."""
    for one in ast.walk(tree):
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test):
            one.body = []
    found = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("parityscope"):
            home = one.module.removeprefix("parityscope").lstrip(".").replace(".", "/")
            found |= {home, f"{home}/__init__", *(f"{home}/{alias.name}".lstrip("/") for alias in one.names)}
            if home == "study":
                found.add("study/_examining")
    return found


def floors_of(modules: dict[str, Module]) -> dict[str, int]:
    """The floor of each module: one above the highest that it imports; what is in a circle stays where it was met first."""
    floors: dict[str, int] = {}

    def floor(name: str, above: tuple[str, ...]) -> int:
        if name not in floors:
            below = [floor(one, (*above, name)) for one in sorted(modules[name].imports) if one not in (*above, name)]
            floors[name] = 1 + max(below, default=-1)
        return floors[name]

    for name in modules:
        floor(name, ())
    return floors


def draw(modules: dict[str, Module], taken: dict[str, int], title: str) -> str:
    """The drawing as SVG."""
    floors = floors_of(modules)
    highest = max(floors.values())
    rows: list[list[str]] = [[] for _ in range(highest + 1)]
    for name, floor in floors.items():
        rows[highest - floor].append(name)
    places: dict[str, tuple[int, int]] = {}
    y = 56
    for row in rows:
        for start in range(0, len(row), ROW):
            names = _ordered(row, modules)[start : start + ROW]
            places |= {name: (GAP_X + column * (WIDTH + GAP_X), y) for column, name in enumerate(names)}
            y += HEIGHT + GAP_X
        y += GAP_Y
    wide = max(x for x, _ in places.values()) + WIDTH + GAP_X
    high = max(y for _, y in places.values()) + HEIGHT + GAP_X
    imports = [(name, one) for name, each in modules.items() for one in sorted(each.imports)]
    arrows = [_arrow(places, name, one, is_up=floors[one] >= floors[name]) for name, one in imports]
    boxes = [_box(name, each, places[name], taken) for name, each in modules.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="11">',
            f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
            f'<text x="{GAP_X}" y="26" font-size="16" fill="#111111">{escape(title)}</text>',
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _ordered(names: list[str], modules: dict[str, Module]) -> list[str]:
    return sorted(names, key=lambda name: (not modules[name].boxes, name))


def _arrow(places: dict[str, tuple[int, int]], name: str, one: str, *, is_up: bool) -> str:
    (x, y), (to_x, to_y) = places[name], places[one]
    color = "#c62828" if is_up else "#9db4c8"
    return (
        f'<path d="M{x + WIDTH // 2} {y + HEIGHT}C{x + WIDTH // 2} {y + HEIGHT + 30} {to_x + WIDTH // 2} {to_y - 30} '
        f'{to_x + WIDTH // 2} {to_y}" fill="none" stroke="{color}" stroke-width="{2 if is_up else 0.8}"/>'
    )


def _box(name: str, module: Module, place: tuple[int, int], taken: dict[str, int]) -> str:
    x, y = place
    fill = "#ffe0b2" if module.boxes else "#eaf1f7"
    told = ", ".join(f"{box} ({taken.get(box, 0)})" for box in module.boxes)
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="{fill}" stroke="#5b7083"/>'
        f'<text x="{x + 6}" y="{y + 14}" fill="#111111">{escape(name.removesuffix("/__init__"))} · {module.lines}</text>'
        f'<text x="{x + 6}" y="{y + 28}" font-size="9" fill="#8a4b00">{escape(told)}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--title", default="One examination")
    parser.add_argument("-o", "--output", type=Path, default=Path("house.svg"))
    asked = parser.parse_args()
    modules, taken = read_modules(asked.root)
    asked.output.write_text(draw(modules, taken, asked.title), encoding="utf-8")
    print(f"{len(modules)} modules, {sum(one.lines for one in modules.values())} lines; parameters: {taken}")


if __name__ == "__main__":
    main()
