"""The model was exported in training mode.

What goes wrong: Dropout with training_mode puts random zeros into every run, so that no two answers are equal and
nothing can be compared. BatchNormalization in training mode normalizes with the statistics of the batch at hand: the
answer for one sample depends on the others, and the trained running statistics are not used.

How it shows: outputs change from run to run, or with the batch; accuracy below that of the training framework.

How we test for it: the attribute of BatchNormalization (`training_mode`; `is_test` before opset 7), and the constant input of
Dropout. Random Dropout is a cause; BatchNormalization contributes, as a few networks want it.

What it is confused with: non-determinism of the engine.

How to repair: call model.eval() before the export, with training=TrainingMode.EVAL.

Sources: ONNX operators Dropout-13, BatchNormalization-15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.linting import Rule, RuleExample
from parityscope.linting._telling import format_plural, make_finding, name_places, offer_by_hand
from parityscope.linting._walk import attribute_value, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.linting.records import Place, Sheet
    from parityscope.records import Finding, Role

_RATIO = 0.5  # Dropout's default


def _look(sheet: Sheet) -> Iterator[Finding]:
    dropping = [place for place in sheet.places if _drops_at_random(sheet, place)]
    if dropping:
        yield _show_finding(dropping, "cause", "every run puts other random zeros in")
    learning = [place for place in sheet.places if _updates_statistics(sheet, place)]
    if learning:
        yield _show_finding(
            learning, "contributing", "the statistics of the batch at hand take the place of the trained ones"
        )


def _drops_at_random(sheet: Sheet, place: Place) -> bool:
    node = place.node
    if node.op_type != "Dropout" or node.domain:
        return False
    if sheet.opset < 7:
        return bool(attribute_value(node, "is_test", 0) == 0)
    if len(node.inputs) < 3 or number_of(sheet, node.inputs[2]) != 1.0:
        return False
    ratio = number_of(sheet, node.inputs[1]) if node.inputs[1] is not None else _RATIO
    return ratio != 0.0


def _updates_statistics(sheet: Sheet, place: Place) -> bool:
    node = place.node
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    if sheet.opset < 7:
        return bool(attribute_value(node, "is_test", 0) == 0)
    return attribute_value(node, "training_mode", 0) == 1 or (sheet.opset < 14 and len(node.outputs) > 1)


def _show_finding(places: list[Place], role: Role, effect: str) -> Finding:
    return make_finding(
        role,
        f"{format_plural(len(places), 'node')} in training mode ({name_places(places)}): {effect}",
        because="the file says so",
        places=places,
        repairs=(offer_by_hand("export_for_inference", "call model.eval() and export again"),),
    )


_DROPOUT = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
  y = Dropout(x, ratio, training)
}"""
_BN = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,2,4,4] x) => (float[2,2,4,4] y) {
  y, m, v = BatchNormalization <training_mode = 1> (x, scale, bias, mean, variance)
}"""
_ROW = {name: np.ones(2, np.float32) for name in ("scale", "bias", "mean", "variance")}


def _dropout_constants(ratio: float, *, training: bool) -> dict[str, np.ndarray]:
    return {"ratio": np.array(ratio, np.float32), "training": np.array(training)}


RULE = Rule(
    code="EXP101",
    title="The model was exported in training mode",
    look=_look,
    holds=(
        RuleExample(model=_DROPOUT, constants=_dropout_constants(0.1, training=True), role="cause", node="Dropout#0"),
        RuleExample(model=_BN, constants=_ROW, role="contributing", node="BatchNormalization#0"),
    ),
    holds_not=(
        RuleExample(model=_DROPOUT, constants=_dropout_constants(0.1, training=False)),
        RuleExample(model=_DROPOUT, constants=_dropout_constants(0, training=True)),
    ),
)
