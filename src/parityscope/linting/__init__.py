"""What can be known from a model's file alone: one rule per file, and no run.

A rule is a value of plain functions (the last line of its file): `look` reads a `Sheet` (the graph, its nodes with
their places, every constant with its numbers) and gives findings. Its module docstring is its page:
`parityscope explain RNG101` prints it. Codes are those of the checks' families, counted from 101.

A finding is a *cause* only if the file alone shows that the model breaks in a format that was asked for, whatever the
converter does; *contributing* if it breaks on some data or with some converters; else *information*.

Outside packages add rules through entry points of the group "parityscope.linting".
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from parityscope.light_dataclasses import dataclass, field, replace
from parityscope.plugins import discover_plugins
from parityscope.records import ROLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding, Skip

DEFAULT_FORMATS = ("f16", "bf16")

# What outside rules of an older form import -> what they write now (plugins.py tells them).
FORMER: Mapping[str, str] = MappingProxyType({"Example": "import RuleExample, as it is called now"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleExample:
    """A smallest file for a rule: an ONNX model as text, and initializers to add to it.

    `role` is the role that the rule must give ("" for any), `node` a node that it must name.
    """

    model: str
    constants: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    formats: tuple[str, ...] = ("f16",)
    role: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing to look for. `holds` are files in which it must be found, `holds_not` those in which it must not."""

    code: str
    title: str
    look: Callable[[Sheet], Iterable[Finding]]
    holds: tuple[RuleExample, ...]
    holds_not: tuple[RuleExample, ...]

    def find(self, sheet: Sheet) -> list[Finding]:
        """What it finds in a file; what bears no code yet gets the rule's own, with its title."""
        return [one if one.code else self._sign_finding(one) for one in self.look(sheet)]

    def _sign_finding(self, finding: Finding) -> Finding:
        evidence = (replace(one, experiment=replace(one.experiment, check=self.code)) for one in finding.evidence)
        return replace(finding, code=self.code, title=self.title, evidence=tuple(evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """What the rules found in a file, causes first; `skipped` is what could not be read."""

    sheet: Sheet
    findings: tuple[Finding, ...]
    skipped: tuple[Skip, ...]

    @property
    def broken(self) -> bool:
        """Whether there is a cause."""
        return any(finding.role == "cause" for finding in self.findings)


def known_rules() -> dict[str, Rule]:
    """Every rule there is, by code, in the order of the codes."""
    found = {rule.code: rule for rule, _ in discover_plugins("parityscope.linting", "RULE", Rule).values()}
    return dict(sorted(found.items()))


def rule_page(code: str) -> str:
    """The documentation page of a rule; KeyError if there is none of that code."""
    pages = {rule.code: module.__doc__ or "" for rule, module in discover_plugins(__name__, "RULE", Rule).values()}
    return pages[code].strip()


def lint(path: str | Path, formats: Sequence[str] = DEFAULT_FORMATS, *, loaded: bool = False) -> Lint:
    """Reads the file at `path` and asks every rule about it.

    Args:
        path: An ONNX file, of any size; external data is mapped into memory and read once.
        formats: Short names of the floating-point formats that the model is meant for ("f16", "bf16", "f8e4m3").
        loaded: Whether ONNX Runtime is asked too if the file can be loaded; nothing is run.

    Raises:
        ParityError: the file cannot be read, or not be loaded, or there is no such format.
    """
    from parityscope.linting._loading import check_loading
    from parityscope.linting._reading import read_sheet

    sheet = read_sheet(path, formats)
    unseen = check_loading(sheet) if loaded else ()
    found = [finding for rule in known_rules().values() for finding in rule.find(sheet)]
    ordered = sorted(found, key=lambda finding: ROLES.index(finding.role))
    return Lint(sheet=sheet, findings=tuple(ordered), skipped=(*sheet.skipped, *unseen))
