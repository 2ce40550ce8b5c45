"""Kinds of plug-ins, and the text of a new one: a scaffold with its name, its code and imports sorted for its place."""

from __future__ import annotations

import importlib
import keyword
import re
from importlib.resources import files
from pathlib import Path

from parityscope.api.catalogues import CATALOGUES
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass
from parityscope.plugins import plugin_modules

_LONGEST = 40  # characters of a name: the lines that hold it then stay within any usual length
_PLACEHOLDER, _CODE = "scaffold_name", "USR000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of plug-in: the package that holds it, the catalogue of `parityscope list`, and how its contract is run."""

    package: str
    catalogue: str
    contract: tuple[str, ...]


def check_name(kind: Kind, name: str) -> None:
    """Checks that a plug-in may be called `name`.

    Raises:
        ParityError: it is no name of a module, or is taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or len(name) > _LONGEST:
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST]
        fix = f"write {plain}" if re.match(r"[a-z]", plain) and not keyword.iskeyword(plain) else "write my_plugin"
        raise ParityError(f"{name!r} cannot be the name of a module of at most {_LONGEST} letters", fix=fix)
    if name in {*plugin_modules(kind.package), *CATALOGUES[kind.catalogue]()}:
        raise ParityError(
            f"there is {name!r} among the {kind.catalogue} already", fix="choose another name: names are unique"
        )


def text_of(kind_name: str, name: str, *, inside: bool) -> str:
    """The file of a new plug-in; `inside` says that it will lie in Parityscope's own folder."""
    text = files("parityscope.cli.scaffolding").joinpath(f"{kind_name}.py").read_text(encoding="utf-8")
    text = text.replace(_PLACEHOLDER, name)
    if _CODE in text:
        text = text.replace(_CODE, _next_code())
    if not inside:
        # Elsewhere parityscope is an installed package as numpy is, and sorted imports put the two in one block.
        text = re.sub(r"(?m)^( *import (?:numpy|onnx_ir)\b.*\n)\n(?= *from parityscope)", r"\1", text)
    return text


def folder_of(kind: Kind) -> Path:
    """Where Parityscope's own plug-ins of this kind lie."""
    return Path(importlib.import_module(kind.package).__path__[0]).resolve()


def module_path(file: Path) -> str:
    """The dotted name that `file` is imported by: its own, behind those of the packages that it lies in."""
    parts = [file.stem]
    for folder in file.resolve().parents:
        if not (folder / "__init__.py").exists():
            break
        parts.insert(0, folder.name)
    return ".".join(parts)


def _next_code() -> str:
    """The lowest number of the family USR that neither a check nor a rule has."""
    known = {*CATALOGUES["checks"](), *CATALOGUES["rules"]()}
    return next(code for number in range(1, 1000) if (code := f"USR{number:03d}") not in known)


# The contract of each kind, as the lines of a test; `{module}` is the plug-in's.
KINDS = {
    "metric": Kind(
        package="parityscope.comparison.metrics",
        catalogue="metrics",
        contract=("from parityscope.testing.metric_contract import check_metric", "check_metric({module}.METRIC)"),
    ),
    "backend": Kind(
        package="parityscope.backends",
        catalogue="backends",
        contract=(
            "from parityscope.backends.contract import check_backend",
            "check_backend({module}.BACKEND, model, sample, target)",
        ),
    ),
    "check": Kind(
        package="parityscope.checks",
        catalogue="checks",
        contract=(
            "from parityscope.testing.check_contract import check_examples",
            "check_examples({module}.CHECK, tmp_path)",
        ),
    ),
    "rule": Kind(
        package="parityscope.linting",
        catalogue="rules",
        contract=("from parityscope.linting.contract import check_examples", "check_examples({module}.RULE, tmp_path)"),
    ),
    "repair": Kind(
        package="parityscope.repairs",
        catalogue="repairs",
        contract=(
            "from parityscope.testing.repair_contract import check_repair",
            "check_repair({module}.REPAIR, model, finding, inputs, tmp_path)",
        ),
    ),
    "renderer": Kind(
        package="parityscope.report",
        catalogue="formats",
        contract=(
            "from parityscope.testing.renderer_contract import check_renderer",
            "check_renderer({module}.RENDERER, tmp_path)",
        ),
    ),
}
