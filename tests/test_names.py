"""What names tell of the code does not get worse: `bench/names.py` counts, and these are the numbers that it may not exceed."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

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


def test_no_test_takes_a_private_name() -> None:
    """Neither imported nor reached for in a module that is; a module's file may be private to its folder."""
    taken = []
    for path in sorted((HERE / "tests").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parityscope"):
                modules |= {one.asname or one.name for one in node.names}
                taken += [f"{path.name}: {one.name}" for one in node.names if one.name.startswith("_")]
        taken += [
            f"{path.name}: {node.value.id}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
            if node.attr.startswith("_") and not node.attr.startswith("__")
        ]
    assert taken == []


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
