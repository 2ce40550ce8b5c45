"""Versions: opset, IR version, exporter.

What goes wrong: nothing by itself. Some operators exist only from an opset on, and tools have limits: below opset 17
there is no LayerNormalization, so that exporters take it apart (RNG105); quantization per channel needs 13; ModelOpt's
AutoCast needs 13 and writes at most IR version 10; operators of opset 6 and older follow other broadcasting rules.

How it shows: a converter refuses the model, or takes an older path.

How we test for it: the file's header.

What it is confused with: causes. Versions are told for the record, never as one.

How to repair: export with a newer opset, where one of the limits matters.

Sources: ONNX "Operator Changelog"; NVIDIA ModelOpt AutoCast (minimum opset 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import make_finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Sheet
    from parityscope.records import Finding

_NO_LAYER_NORMALIZATION = 17
_AUTOCAST = 13
_NEWEST_IR = 10


def _look(sheet: Sheet) -> Iterator[Finding]:
    notes = []
    if 0 < sheet.opset < _AUTOCAST:
        notes.append("opset below 13: no quantization per channel, and ModelOpt's AutoCast converts it first")
    elif 0 < sheet.opset < _NO_LAYER_NORMALIZATION:
        notes.append("opset below 17: LayerNormalization can only be there taken apart")
    ir_version = int(sheet.model.ir_version or 0)
    if ir_version > _NEWEST_IR:
        notes.append(f"IR version {ir_version}: tools of 2024 and older read up to {_NEWEST_IR}")
    if notes:
        opsets = {domain or "ai.onnx": int(version) for domain, version in sheet.model.opset_imports.items()}
        yield make_finding(
            "information",
            f"opset {sheet.opset}, IR version {ir_version}: {'; '.join(notes)}",
            because="the file's header",
            details={"opsets": opsets, "ir_version": ir_version},
        )


_OLD = """<ir_version: 8, opset_import: ["" : 11]> g (float[4] x) => (float[4] y) { y = Neg(x) }"""

RULE = Rule(
    code="EXP104",
    title="Versions that tools have limits about",
    look=_look,
    holds=(
        RuleExample(model=_OLD, role="information"),
        RuleExample(model=_OLD.replace(": 11", ": 13"), role="information"),
        RuleExample(
            model=_OLD.replace("ir_version: 8", "ir_version: 11").replace(": 11]", ": 17]"), role="information"
        ),
    ),
    holds_not=(RuleExample(model=_OLD.replace(": 11", ": 17")),),
)
