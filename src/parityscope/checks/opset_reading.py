"""The same nodes are read by another version of the operator set.

What goes wrong: what an operator means depends on the opset that its file declares. Softmax flattened its input up to opset 12
and works along one axis, the last, from 13 on; Resize got other ways to place its samples in 11; Clip, Dropout and ReduceSum
moved attributes to inputs. A script that edits the opset's number and not the nodes, or a merge of graphs of two opsets, makes
another function of the same nodes, and nothing fails.

How it shows: a re-exported, simplified or merged file whose outputs differ at a Softmax or a Resize, with equal weights.

How we test for it: only where the candidate runs a file of its own (`model=PATH`) that declares another opset. The reference's
graph is read by that opset, its nodes as they are. If that gives the candidate's outputs, the reading is the cause. Otherwise,
or if the graph is not valid there, it is refuted.

What it is confused with: a conversion that changed the nodes too (FUS002 says which function they compute then).

How to repair: convert with `onnx.version_converter.convert_version`, which changes the nodes; export again with `opset_version=`.

Sources: ONNX operator changelog: Softmax-1, -11 and -13, Resize-10 and -11, Clip-6 and -11, ReduceSum-13.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks import Check, Example, Proposal, Result
from parityscope.checks._common import number
from parityscope.checks._conversion import worst
from parityscope.checks._reproducing import RUN_S, refuted, supported
from parityscope.errors import ParityError
from parityscope.records import Experiment, Finding, OfferedRepair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parityscope.checks import Bench, Run, Scene
    from parityscope.records import Evidence

__all__ = ["CHECK"]

_CODE = "EXP004"
_TITLE = "The same nodes are read by another opset"


def _propose(scene: Scene) -> Iterator[Proposal]:
    path = scene.candidate.option("model")
    if scene.bench is None or not path:
        return
    from parityscope.case import load_model

    ours, theirs = scene.model.opsets.get("", 0), load_model(Path(path)).opsets.get("", 0)
    if ours == theirs or not theirs:
        return
    changed = _changed_operators(scene, ours, theirs)
    if not changed:
        return
    experiment = Experiment(
        check=_CODE,
        claim=f"the candidate reads the same nodes by opset {theirs}",
        change=f"read the reference's graph by opset {theirs} instead of {ours}, nodes as they are",
        measure="worst relative L2 error of the outputs",
        if_true="it gives the candidate's outputs",
        if_false="it gives others, or the graph is not valid there",
        cost_s=4 * RUN_S,
    )
    bench = scene.bench
    yield Proposal(experiment=experiment, test=lambda: _tested(scene, bench, theirs, changed, experiment))


def _changed_operators(scene: Scene, ours: int, theirs: int) -> list[str]:
    """The types of operators in the graph that have another definition in the two opsets."""
    import onnx

    found = []
    for kind in dict.fromkeys(node.op_type for node in scene.graph.graph if not node.domain):
        try:
            versions = {
                onnx.defs.get_schema(kind, max_inclusive_version=opset).since_version for opset in (ours, theirs)
            }
        except onnx.defs.SchemaError:
            versions = {0, 1}  # it does not exist in one of them
        if len(versions) > 1:
            found.append(kind)
    return found


def _tested(scene: Scene, bench: Bench, opset: int, changed: list[str], experiment: Experiment) -> Result:
    before = worst(scene, bench, bench.reference, bench.candidate)
    try:
        after = worst(scene, bench, _read_by(scene, opset), bench.candidate)
    except ParityError as error:
        return refuted(experiment, before, f"it is not valid there: {error.problem}")
    because = f"the error goes from {number(before.error)} to {number(after.error)}"
    if not after.explains(before):
        return refuted(experiment, before, because, after=after.error)
    evidence = supported(experiment, before, after, because)
    return Result(evidence=evidence, finding=_finding(opset, changed, after.share(before), evidence))


def _read_by(scene: Scene, opset: int) -> Run:
    """The reference's graph as a function, read by another opset."""
    from parityscope.backends._onnxruntime import open_session

    graph = scene.model.graph()
    graph.graph.opset_imports[""] = opset
    names = [value.name for value in scene.model.outputs]
    return open_session(graph, outputs=names, optimization="disabled", folder=scene.model.path.parent)


def _finding(opset: int, changed: list[str], share: float, evidence: Evidence) -> Finding:
    return Finding(
        code=_CODE,
        title=_TITLE,
        role="cause",
        claim=f"The candidate's file holds the same nodes and declares opset {opset}, in which {', '.join(changed)} "
        f"{'has' if len(changed) == 1 else 'have'} another meaning: {evidence.because}.",
        confidence=share,
        confidence_from="the share of the error, in squares, that is gone when the reference is read by that opset",
        share=share,
        evidence=(evidence,),
        repairs=(
            OfferedRepair(
                repair="convert_opset",
                text="convert the original file with onnx.version_converter.convert_version, which changes the nodes too",
                command=f"python -c \"import onnx; onnx.save(onnx.version_converter.convert_version(onnx.load('IN'), {opset}), "
                "'OUT')\"",
            ),
        ),
        details={"opset": opset, "operators": ", ".join(changed)},
    )


_OLD = """<ir_version: 8, opset_import: ["" : 12]> g (float[2,3,4] x) => (float[2,3,4] y) {
  a = Mul(x, x)
  y = Softmax(a)
}"""
_NEW = _OLD.replace(": 12]", ": 13]")
_LOG = _NEW.replace("Softmax", "LogSoftmax")
_X = {"x": np.random.default_rng(78).normal(size=(2, 3, 4)).astype(np.float32)}

CHECK = Check(
    code=_CODE,
    title=_TITLE,
    propose=_propose,
    holds=(Example(model=_OLD, candidate_model=_NEW, inputs=_X, candidate="ort"),),
    holds_not=(
        # Another opset and another function; another opset, and an operator that means the same in both.
        Example(model=_OLD, candidate_model=_LOG, inputs=_X, candidate="ort"),
        Example(
            model=_OLD.replace("Softmax", "Tanh"),
            candidate_model=_NEW.replace("Softmax", "Sigmoid"),
            inputs=_X,
            candidate="ort",
        ),
        Example(model=_OLD, inputs=_X, candidate="sim:bf16", declared="f32"),
    ),
)
