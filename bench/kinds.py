"""What the lines of the package are: pages, docstrings, comments, blank lines, imports, data, code; and what stands beside them.

    python bench/kinds.py [--root CHECKOUT] [FOLDER ...]

"Data" are the values of a module that are written out where it is imported: tables, texts, the examples of a check. "Page" is
a module's own docstring, which `parityscope explain` and the docs print for plug-ins. A line counts once, as the first of these
that it is.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
KINDS = ("page", "docstring", "comment", "blank", "imports", "data", "code")
OTHER = (".po", ".json", ".j2", ".js", ".css", ".toml")


def count_kinds(source: str) -> Counter[str]:
    """Lines of a module by their kind."""
    lines = source.splitlines()
    kind_of: dict[int, str] = {}

    def mark(node: ast.AST, kind: str) -> None:
        for line in range(node.lineno, node.end_lineno + 1):  # type: ignore[attr-defined]
            kind_of.setdefault(line, kind)

    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            mark(node.body[0], "page" if isinstance(node, ast.Module) else "docstring")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            mark(node, "imports")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#"):
            kind_of.setdefault(token.start[0], "comment")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            kind_of.setdefault(number, "blank")
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            mark(node, "imports" if "__all__" in ast.unparse(node)[:8] else "data")
    return Counter(kind_of.get(number, "code") for number in range(1, len(lines) + 1))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=HERE)
    parser.add_argument("folders", nargs="*")
    asked = parser.parse_args()
    package = asked.root / "src" / "parityscope"
    places = [package / folder for folder in asked.folders] or [package]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    files: Counter[str] = Counter()
    beside: Counter[str] = Counter()
    for path in sorted(file for place in places for file in place.rglob("*") if file.is_file()):
        inside = path.relative_to(package).parts
        folder = inside[0] if len(inside) > 1 else "."
        if path.suffix == ".py":
            found[folder] += count_kinds(path.read_text(encoding="utf-8"))
            files[folder] += 1
        elif path.suffix in OTHER:
            beside[path.suffix] += path.read_text(encoding="utf-8").count("\n")
    print("| folder | files | lines |", " | ".join(KINDS), "|\n| --- " + "| ---: " * (len(KINDS) + 2) + "|")
    for folder, kinds in sorted(found.items(), key=lambda one: -one[1].total()):
        print(f"| {folder} | {files[folder]} | {kinds.total():,} |", *(f"{kinds[kind]:,} |" for kind in KINDS))
    whole: Counter[str] = sum(found.values(), Counter())
    print(f"| all | {files.total()} | {whole.total():,} |", *(f"{whole[kind]:,} |" for kind in KINDS))
    print("beside them:", ", ".join(f"{count:,} lines of {suffix}" for suffix, count in beside.most_common()))


if __name__ == "__main__":
    main()
