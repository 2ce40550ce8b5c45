"""Operators that hold a graph together: control flow, constants, shapes, sequences, random numbers."""

from __future__ import annotations

from parityscope.operators._records import Operator

OPERATORS = (
    Operator("If", "control flow", inputs=("branch",), exactness="exact"),
    Operator("Loop", "control flow", inputs=("trip count", "continuation"), exactness="exact", carries=(2, 1)),
    Operator("Scan", "control flow", exactness="exact", carries=(0, 0)),
    Operator("BlackmanWindow", "constant", inputs=("size",), typed_by="output_datatype"),
    Operator("Constant", "constant", exactness="exact", traits=("computes nothing",)),
    Operator("ConstantOfShape", "constant", inputs=("shape",), exactness="exact", traits=("chooses elements",)),
    Operator("EyeLike", "constant", exactness="exact", typed_by="dtype"),
    Operator("HammingWindow", "constant", inputs=("size",), typed_by="output_datatype"),
    Operator("HannWindow", "constant", inputs=("size",), typed_by="output_datatype"),
    Operator("MelWeightMatrix", "constant", typed_by="output_datatype"),
    Operator(
        "OneHot", "constant", inputs=("positions", "depth", "values"), exactness="exact", traits=("chooses elements",)
    ),
    Operator("Range", "constant", inputs=("start", "limit", "step"), exactness="exact"),
    Operator("Shape", "shape", exactness="exact", traits=("ignores scale", "computes nothing")),
    Operator("Size", "shape", exactness="exact", traits=("ignores scale",)),
    Operator("ConcatFromSequence", "sequence", exactness="exact", traits=("keeps elements",)),
    Operator("Optional", "sequence", exactness="exact", gives="optional"),
    Operator("OptionalGetElement", "sequence", exactness="exact"),
    Operator("OptionalHasElement", "sequence", exactness="exact"),
    Operator("SequenceAt", "sequence", exactness="exact"),
    Operator("SequenceConstruct", "sequence", exactness="exact", gives="sequence"),
    Operator("SequenceEmpty", "sequence", exactness="exact", gives="sequence"),
    Operator("SequenceErase", "sequence", exactness="exact", gives="sequence"),
    Operator("SequenceInsert", "sequence", exactness="exact", gives="sequence"),
    Operator("SequenceLength", "sequence", exactness="exact"),
    Operator("SequenceMap", "sequence", exactness="exact", gives="sequence"),
    Operator("SplitToSequence", "sequence", inputs=("input", "sizes"), exactness="exact", gives="sequence"),
    Operator("Bernoulli", "random", exactness="exact", typed_by="dtype"),
    Operator("Multinomial", "random", exactness="exact", typed_by="dtype"),
    Operator("RandomNormal", "random", exactness="exact", typed_by="dtype"),
    Operator("RandomNormalLike", "random", exactness="exact", typed_by="dtype"),
    Operator("RandomUniform", "random", exactness="exact", typed_by="dtype"),
    Operator("RandomUniformLike", "random", exactness="exact", typed_by="dtype"),
)
