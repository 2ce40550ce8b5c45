"""No text is missing in a language: every sentence of the code that a person is told, held against the catalogues.

The texts are read from the code itself: what is a string of two words or more in the folders that write findings, repairs,
studies and reports. What is no word for people (code, styles, expressions) is listed
in `data/not_spoken.txt`. A new sentence is added to a `.po` file of `src/parityscope/languages/zh`: this test says which.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from golden import documents
from parityscope.backends.onnxruntime_sessions import open_session
from parityscope.case import load_model
from parityscope.catalogue import WORDS, tell_page, whole_catalogue
from parityscope.hypotheses.from_outputs.families import bounds_of, families_of, filters_of, operators_of
from parityscope.hypotheses.from_outputs.searching import KnownOutputs, search_outputs
from parityscope.hypotheses.from_outputs.sites import EARLY, LATE
from parityscope.languages import LANGUAGES, OWN, speak_language
from parityscope.languages.catalogue import entries_of
from parityscope.languages.translating import missing_in, translate
from parityscope.report.view import view_study
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,6,6] x) => (float[1,5] y) {
  a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
  r = Relu(a)
  m = Concat<axis = 1>(r, x)
  f = Flatten(m)
  n = LayerNormalization(f, scale)
  d = MatMul(n, k)
  y = Softmax(d)
}"""
OTHERS = sorted(set(LANGUAGES) - {OWN})
SOURCE = Path(__file__).parents[1] / "src" / "parityscope"
FOLDERS = (
    *(
        "checks",
        "diagnosis.py",
        "environment.py",
        "expectation",
        "explanation",
        "hypotheses",
        "installed.py",
        "linting",
    ),
    *("localization", "logs", "pairing.py", "repairs", "report", "study", "verification"),
)
# What logs say: lines of other programs, of which nothing is a text of ours.
OF_LOGS = {"_weights.py", "facts.py", "layers.py", "lines.py", "names.py", "taking.py"}
NOT_SPOKEN = set((Path(__file__).parent / "data" / "not_spoken.txt").read_text("utf-8").splitlines())
COMMANDS_ALONE = {"nvidia.py"}
COMMANDS = re.compile(r"(<|trtexec|polygraphy|parityscope (run|repair|compare) \{)")
FIELD = re.compile(r"\{[a-z_]*(?::[^}]*)?\}")
WORD = re.compile(r"[A-Za-z]{2,}")
SOURCES = re.compile("来源")  # of what was found elsewhere, under the names that it has there
# Arguments that are models, arrays or names, and errors of programmers.
NO_TEXT = {"model", "network", "candidate", "candidate_model", "declared", "hint", "pattern", "source"}
OURS = {"ValueError", "TypeError"}


def spoken_by(path: Path) -> Iterator[str]:
    """The texts of a file, in the form of a catalogue."""
    tree = ast.parse(path.read_text("utf-8"))
    left_out = set(map(id, _silent(tree)))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        text = _text(node).strip()
        bare = text.replace("{}", "")
        if " " in text and "\n" not in text and "ir_version" not in text and len(WORD.findall(bare)) > 1:
            yield text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return FIELD.sub("{}", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def _silent(tree: ast.Module) -> Iterator[ast.AST]:
    """Docstrings, annotations, the parts of f-strings, and arguments that hold no text for people."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
            yield node.body[0].value  # type: ignore[attr-defined]
        if isinstance(node, ast.JoinedStr):
            yield from (part for part in node.values if isinstance(part, ast.Constant))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OURS:
            yield from ast.walk(node)
        if isinstance(node, ast.keyword) and node.arg in NO_TEXT:
            yield from ast.walk(node.value)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield from ast.walk(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield from ast.walk(node.returns)


@functools.cache
def sentences() -> dict[str, str]:
    """Every text of the code and a file that says it."""
    return {text: str(path.relative_to(SOURCE)) for path in files() for text in spoken_by(path)}


def files() -> Iterator[Path]:
    for name in FOLDERS:
        place = SOURCE / name
        found = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        yield from (
            path for path in found if path.name not in COMMANDS_ALONE and not (name == "logs" and path.name in OF_LOGS)
        )


@pytest.mark.parametrize("code", OTHERS)
def test_every_sentence_of_the_code_is_told(code: str) -> None:
    held = entries_of(code)
    missing = [
        f"{path}: msgid {json.dumps(text, ensure_ascii=False)}"
        for text, path in sentences().items()
        if text not in held and text not in NOT_SPOKEN and not COMMANDS.match(text)
    ]
    told = f"add these to src/parityscope/languages/{code}/*.po, or what is no sentence to tests/data/not_spoken.txt"
    assert not missing, "\n".join([told, *sorted(missing)])


def test_what_is_said_to_be_no_text_is_in_the_code() -> None:
    assert sorted(NOT_SPOKEN - set(sentences())) == []


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("name", ["templates", "scripts"])
def test_every_text_of_the_pages_is_told(code: str, name: str) -> None:
    found = set(templates() if name == "templates" else scripts())
    assert len(found) > 10
    assert sorted(text for text in found if missing_in(text, code) and text not in NOT_SPOKEN) == []


def templates() -> Iterator[str]:
    """The runs of text of the templates, with a number for what is filled in."""
    for path in sorted((SOURCE / "report").rglob("*.j2")):
        text = re.sub(r"(?s)\{#.*?#\}|<(script|style|code|pre)\b.*?</\1>", "", path.read_text("utf-8"))
        text = re.sub(r"\{\{.*?\}\}", "7", text)
        spoken = re.findall(r'(?:aria-label|placeholder)="([^"{]*)"', text)
        text = re.sub(r'="[^"]*"', "", re.sub(r"\{%.*?%\}", "<>", text))
        for run in (*spoken, *re.split(r"<[^>]*>", text)):
            if len(WORD.findall(run)) > 1:
                yield " ".join(run.split())


def scripts() -> Iterator[str]:
    for path in sorted((SOURCE / "report" / "templates").glob("*.js")):
        yield from re.findall(r'\bwords\("((?:[^"\\]|\\.)*)"', path.read_text("utf-8"))


@pytest.mark.parametrize("code", OTHERS)
def test_every_page_of_a_code_is_told(code: str) -> None:
    """Four words on end are a sentence that was left as it is; names, code and what is quoted from logs are no words of ours."""
    left = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,} [a-z]{2,}")
    quoted = re.compile(r'"[^"]*"|`[^`]*`|^    .*$', re.MULTILINE)
    titles = [entry.title for entry in whole_catalogue().values()]
    pages = [entry.page() for entry in whole_catalogue().values()] + list(WORDS.values())
    with speak_language(code):
        told = [part for page in pages for part in tell_page(page).split("\n\n") if not SOURCES.match(part)]
    assert [title for title in titles if missing_in(title, code)] == []
    assert [part for part in told if left.search(quoted.sub("", part))] == []


@pytest.mark.parametrize("code", OTHERS)
def test_every_word_of_a_first_screen_is_told(code: str) -> None:
    for document in (documents.within(), documents.incomplete(), documents.detector(16)):
        found = view_study(document)
        screen = found["first_screen"]
        labels = [row["label"] for row in screen["rows"]]
        texts = [screen["title"], screen["basis"], screen["rest"], *labels, *(tile["label"] for tile in found["tiles"])]
        assert [text for text in texts if missing_in(text, code)] == []


@pytest.mark.parametrize("code", OTHERS)
def test_every_generated_edit_is_told(code: str, tmp_path: Path) -> None:
    """Whatever was changed in a network, its name and numbers aside, is said in the language."""
    draw = np.random.default_rng(3)
    shapes = {"w": (4, 4, 3, 3), "b": (4,), "scale": (288,), "k": (288, 5)}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = write_network(tmp_path / "m.onnx", NETWORK, weights)
    feeds = [{"x": draw.normal(size=(1, 4, 6, 6)).astype(np.float32)}]
    wrong = [{name: array[:, ::-1] for name, array in open_session(load_model(model).graph())(feeds[0]).items()}]
    found = search_outputs(KnownOutputs(model=model, feeds=feeds, candidate=wrong, noise={"y": 1e-6}, scale=0.01))
    edits = {edit.words for site in found.sites for _, edit in site.edits((*EARLY, *LATE))}
    edits |= {
        family.make(*family.starts[0]).words
        for site in found.sites
        for family in (*families_of(site), *bounds_of(site), *operators_of(site), *filters_of(site))
    }
    assert len(edits) > 5000
    left = {words: said for words in edits if _english_in(said := translate(words, code), words)}
    assert not left, "\n".join(f"{words} -> {said}" for words, said in left.items())


@functools.cache
def _names_of_the_standard() -> frozenset[str]:
    schemas = onnx.defs.get_all_schemas_with_history()
    kept = {name for one in schemas for name in (one.name, *one.attributes, *(made.name for made in one.inputs))}
    return frozenset(kept | {"erf", "tanh", "edge", "reflect", "symmetric", "wrap"})  # the last four are numpy's


def _english_in(said: str, words: str) -> set[str]:
    """What is left of English but for names: of tensors, in the standard, and an attribute's value."""
    values = re.findall(r"(?:attribute|with) \w+ ([\w.]+)| in place of (\w+)$", words)
    plain = re.sub(r"'[^']*'", "", said)
    english = set(re.findall(r"(?<![\w'/._-])[a-z]{3,}(?![\w'/._-])", plain))
    return english - _names_of_the_standard() - {value for pair in values for value in pair}
