"""The contract of rules, for those who write them: every example must, or must not, be found.

`findings_of(rule, example, folder)` writes the example's file below `folder` and asks the rule; `check_examples(rule,
folder)` raises AssertionError with a sentence when an example of the rule is judged wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting._reading import read_sheet
from parityscope.testing.networks import write_network

if TYPE_CHECKING:
    from pathlib import Path

    from parityscope.linting import Rule, RuleExample
    from parityscope.records import Finding


def check_examples(rule: Rule, folder: Path) -> None:
    """Asks `rule` about each of its examples.

    Raises:
        AssertionError: a finding that must be there is not, one that must not be is, or its role or node is another.
    """
    for number, example in enumerate(rule.holds):
        found = findings_of(rule, example, folder / f"holds-{number}")
        if not found:
            raise AssertionError(f"{rule.code}: example {number} of holds is not found")
        if example.role and example.role not in {one.role for one in found}:
            raise AssertionError(f"{rule.code}: example {number} of holds is {found[0].role}, not {example.role}")
        nodes = {name for one in found for name in one.details.get("nodes", ())}
        if example.node and example.node not in nodes:
            raise AssertionError(f"{rule.code}: example {number} of holds names {sorted(nodes)}, not {example.node}")
    for number, example in enumerate(rule.holds_not):
        found = findings_of(rule, example, folder / f"not-{number}")
        wrong = [one for one in found if not example.role or one.role == example.role]
        if wrong:
            raise AssertionError(f"{rule.code}: example {number} of holds_not is found: {wrong[0].claim}")


def findings_of(rule: Rule, example: RuleExample, folder: Path) -> list[Finding]:
    """What the rule finds in an example."""
    folder.mkdir(parents=True, exist_ok=True)
    return rule.find(read_sheet(write_example(example, folder / "model.onnx"), example.formats))


def write_example(example: RuleExample, path: Path) -> Path:
    """Writes an example's model, with its constants as initializers, to `path`."""
    return write_network(path, example.model, example.constants)
