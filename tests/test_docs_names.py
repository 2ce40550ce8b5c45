"""What the pages name is there: options, targets, codes, files, and modules with what is in them.

test_docs.py runs what can be run; this finds the names in sentences, tables and blocks that are not run.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parityscope.backends import known_backends
from parityscope.backends.targets import COMMON_OPTIONS
from parityscope.checks import known_checks
from parityscope.cli.shell.app import command
from parityscope.linting import known_rules
from parityscope.logs.pages import log_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z\d-]*(?![\w-])")  # with a capital in it, it is one of trtexec's
# Options of other people's programs, which the pages name beside ours.
TRTEXEC = "--bf16 --duration --fp16 --fp8 --int8 --iterations --onnx --verbose"
POLYGRAPHY = (
    "--atol --check-error-stat --data-loader-script --fp-to-fp16 --layer-precisions --load-inputs --load-outputs"
    " --onnx-outputs --onnxrt --precision-constraints --rtol --save-inputs --save-outputs --show --trt --trt-outputs"
    " --val-range --artifacts --check --convert-to --fold-constants --mode --model-type --outputs --override-input-shapes --until"
)
# gh's, kubectl's, Polygraphy's, mypy's, pytest's, Ray's
OTHERS = (
    "--log --prefix --save-input-blob --strict --timestamps --junitxml --parity-reports --parity-update --resources"
)
FILES = {"parityscope.toml"}  # a file of the user's that has the package's name
EXAMPLE = "RNG199"  # the code of the page's example of a rule


def options() -> dict[str, set[str]]:
    """The options of each of our commands."""
    commands: dict[str, object] = command().commands  # type: ignore[attr-defined]
    return {
        name: {word for each in one.params for word in (*each.opts, *each.secondary_opts)}  # type: ignore[attr-defined]
        for name, one in commands.items()
    }


def found(pattern: str | re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Every place of the pages that the pattern matches: "page:line", and the match."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(pattern, text):
            yield f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}", match


def test_every_option_is_one_of_somebody() -> None:
    scripts = "".join(
        path.read_text("utf-8") for name in ("bench", "proving", "recorder") for path in (ROOT / name).rglob("*.py")
    )
    known = {"--help", "--version", "--lang"}.union(*options().values(), f"{TRTEXEC} {POLYGRAPHY} {OTHERS}".split())
    seen = [(place, match[0]) for place, match in found(OPTION)]
    assert len(seen) > 100
    assert [(place, word) for place, word in seen if word not in known and f'"{word}"' not in scripts] == []


def test_every_command_takes_the_options_that_are_shown_with_it() -> None:
    known = options()
    shown = [
        (place, match[1], word)
        for place, match in found(r"parityscope (\w+)((?:[^`\n]|\\\n)*)")
        if match[1] in known
        for word in OPTION.findall(match[2])
    ]
    assert len(shown) > 50
    assert [one for one in shown if one[2] not in known[one[1]] | {"--help", "--lang"}] == []


def test_every_target_has_the_options_and_the_precision_that_are_shown() -> None:
    known = known_backends()
    names = "|".join(known)
    seen = list(found(rf"\b({names})(?::(\w+))?(?:\?((?:\w+=[^\s`'\"&|)]*&?)+))?(?=[\s`'\"|),])"))
    targets = [(place, *match.groups()) for place, match in seen if match[2] or match[3]]
    assert len(targets) > 50
    for place, name, precision, query in targets:
        assert not precision or precision in known[name].precisions, (place, name, precision)
        keys = set(re.findall(r"(\w+)=", query or ""))
        assert keys <= {*known[name].options, *COMMON_OPTIONS, "key"}, (place, name, keys)


def test_every_code_has_a_page() -> None:
    known = {*known_checks(), *known_rules(), *log_codes()}
    seen = [(place, match[0]) for place, match in found(rf"\b(?:{'|'.join({code[:3] for code in known})})\d{{3}}\b")]
    assert len(seen) > 50
    assert [one for one in seen if one[1] not in known | {EXAMPLE}] == []


def test_every_file_is_there() -> None:
    seen = [
        (place, match[0])
        for place, match in found(r"(?<![\w/.-])(?:src|tests|bench|docs|recorder|requirements)/[\w./-]*\w\.\w+")
    ]
    assert len(seen) > 20
    assert [one for one in seen if not (ROOT / one[1]).exists()] == []


def test_every_name_of_the_package_is_there() -> None:
    names = sorted({match[0] for _, match in found(r"\bparityscope(?:\.[A-Za-z_]\w*)+(?!\.?\w*\.md)")})
    assert len(names) > 10
    assert [name for name in names if name not in FILES and not resolves(name)] == []


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or what one has."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            held: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(held, part):
                return False
            held = getattr(held, part)
        return True
    return False


@pytest.mark.parametrize("name", ["parityscope.nothing", "parityscope.records.Nothing"])
def test_a_name_that_is_not_there_is_noticed(name: str) -> None:
    assert not resolves(name)
    assert resolves(name.rpartition(".")[0])
