"""What names tell of the code does not get worse: `bench/names.py` counts, and these are the numbers that it may not exceed."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("names", HERE / "bench" / "names.py")
assert SPEC is not None
assert SPEC.loader is not None
names = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(names)


def test_few_functions_are_named_by_one_word() -> None:
    assert names.count_names(HERE).share <= 0.165
    assert names.count_names(HERE, ("study", "cli", "diagnosis.py", "examination.py", "request.py")).share <= 0.19


def test_no_class_name_means_two_things() -> None:
    assert names.count_names(HERE).repeated_classes == {}


def test_no_modules_import_in_a_circle() -> None:
    assert len(names.count_names(HERE).circles) == 0


# What begins with `_` belongs to the folder, the module or the class that it stands in.
_PRIVATE = re.compile(r"_[a-z]|_[A-Z]")
_DOTTED = re.compile(r"parityscope(?:\.\w+)+")


@pytest.mark.parametrize("tree", ["src", "tests", "proving", "bench", "docs"])
def test_what_is_private_is_taken_by_nobody_else(tree: str) -> None:
    """A private module is imported in its own folder alone; a module's private names are not imported, reached for or patched."""
    assert [
        told for path in sorted((HERE / tree).rglob("*.py")) for told in _list_private(path, path.read_text("utf-8"))
    ] == []


def _list_private(path: Path, text: str) -> list[str]:
    """What a file of the repository takes that is private to others."""
    own = path.relative_to(HERE / "src").parent.parts if path.is_relative_to(HERE / "src") else ()
    modules: set[str] = set()
    taken: list[str] = []
    for node in ast.walk(ast.parse(text)):
        dotted: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parityscope"):
            modules |= {one.asname or one.name for one in node.names}
            dotted = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            dotted = [one.name for one in node.names if one.name.startswith("parityscope")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not own:
            dotted = _DOTTED.findall(node.value)  # a name that is patched, or a program that a test runs
        elif isinstance(node, ast.Call) and _name_of_call(node).endswith("setattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(node.args[0], ast.Name) and node.args[0].id in modules and isinstance(name, ast.Constant):
                dotted = [f"{node.args[0].id}.{name.value}"]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            dotted = [f"{node.value.id}.{node.attr}"] if not own else []
        taken += [f"{path.name}: {one}" for one in dotted if _is_private(one.split("."), own)]
    return taken


def _name_of_call(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_private(parts: list[str], own: tuple[str, ...]) -> bool:
    first = next((place for place, part in enumerate(parts) if _PRIVATE.match(part)), None)
    return first is not None and own[:first] != tuple(parts[:first])


@pytest.mark.parametrize(
    "line",
    [
        "from PACKAGE.study._folder import load_study",
        "from PACKAGE.study import _folder",
        "import PACKAGE.study._folder",
        "from PACKAGE.comparison.measure import _measure",
        "from PACKAGE import study\nstudy._folder.load_study()",
        "from PACKAGE.logs import taking\npatch.setattr(taking, '_MOST', 3)",
        "patch.setattr('PACKAGE.study._folder.load_study', None)",
    ],
)
def test_a_private_name_is_seen_however_it_is_taken(line: str) -> None:
    assert len(_list_private(HERE / "tests" / "test_any.py", line.replace("PACKAGE", "parityscope"))) == 1


def test_a_folder_takes_its_own_private_modules() -> None:
    line = "from PACKAGE.study._folder import load_study".replace("PACKAGE", "parityscope")
    assert _list_private(HERE / "src" / "parityscope" / "study" / "changes" / "noise.py", line) == []
    assert len(_list_private(HERE / "src" / "parityscope" / "cli" / "diff.py", line)) == 1


def test_what_is_counted(tmp_path: Path) -> None:
    source = tmp_path / "src" / "parityscope"
    source.mkdir(parents=True)
    (source / "a.py").write_text(
        "from typing import TYPE_CHECKING\nfrom parityscope.b import Thing\n"
        "if TYPE_CHECKING:\n    from parityscope.c import Other\n"
        "class One: pass\ndef load(): pass\ndef read_file(): pass\n",
        encoding="utf-8",
    )
    (source / "b.py").write_text(
        "class One: pass\ndef _late():\n    from parityscope.a import load\n", encoding="utf-8"
    )
    (source / "c.py").write_text("from parityscope.a import load\nclass Other: pass\n", encoding="utf-8")
    found = names.count_names(tmp_path)
    assert (found.functions, found.of_one_word) == (3, 2)
    assert found.repeated_classes == {"One": ["a", "b"]}
    assert found.circles == [("a", "b")]
    assert names.count_names(tmp_path, ("c.py",)).functions == 0
