"""Lines of TensorRT logs that are about numbers: what each means, whether it harms, and why.

Sources: the texts stand in the logs of the issues that `source` names; the verdicts follow what was the true cause there.
"""

from __future__ import annotations

from parityscope.logs.records import Meaning

__all__ = ["NUMBERS"]

_ISSUE = "https://github.com/NVIDIA/TensorRT/issues"
_INT64_END = (
    'exporters write the largest INT64 as "to the end" of a Slice, and clamped to the largest INT32 it means the same'
)

NUMBERS = (
    Meaning(
        name="weights changed by conversion",
        hint="encountered issues when converting weights between types",
        pattern=r"encountered issues when converting weights between types",
        effect="may harm",
        means="some weights are outside the range of the format they were converted to",
        why="the lines after it say how many and of which kind; only overflow is usually harmful",
        source=f"{_ISSUE}/4022",
    ),
    Meaning(
        name="LayerNorm in FP16",
        hint="Detected layernorm nodes in FP16",
        pattern=r"Detected layernorm nodes in FP16(?:: (.*\S))?",
        effect="harmful",
        means="a LayerNorm that is spelled out in single operators (ReduceMean, Sub, Pow, ...) runs in FP16",
        why="Pow(x, 2) overflows FP16 from |x| = 256 on, and sums from 65504 on; the strongest single sign of an FP16 "
        "failure in a log",
        code="RNG204",
        role="contributing",
        fix="keep Pow, ReduceMean, Add, Sqrt and Div of these nodes in FP32, or export with opset 17 or newer so that "
        "they become one LayerNormalization",
        command="parityscope predict model.onnx --inputs DATA --formats f16",
        source=f"{_ISSUE}/2781",
    ),
    Meaning(
        name="LayerNorm in FP16, advice",
        hint="Running layernorm after self-attention",
        pattern=r"Running layernorm after self-attention",
        effect="may harm",
        means='advice that belongs to the line "Detected layernorm nodes in FP16"',
        why="see there",
        source="https://github.com/NVIDIA/TensorRT-LLM/issues/1544",
    ),
    Meaning(
        name="precision request not obeyed",
        hint="obeys the requested constraints",
        pattern=r"^(?>.*?No implementation of layer )(.+?) obeys the requested constraints",
        effect="harmful",
        means="the precision that was asked for this layer was ignored; the fastest kernel runs instead",
        why="a layer that was to stay in FP32 may run in FP16 although the plan says otherwise: the repair is not in the engine",
        code="CST201",
        role="contributing",
        fix="write the precision into the ONNX graph (strong typing), where no builder can ignore it",
        command="parityscope repair model.onnx --candidate TARGET --inputs DATA -o fixed.onnx",
        source=f"{_ISSUE}/2462",
    ),
    Meaning(
        name="constant folded into its shuffle",
        hint="ConstShuffleFusion",
        pattern=r"ConstShuffleFusion(?:: Fusing| on) (.+?)(?: with .*)?$",
        effect="may harm",
        means="a constant and the reshape or transpose after it became one layer of another name",
        why="harmless to the numbers; but a precision asked for by the constant's own name finds no layer any more",
        code="CST203",
        fix="ask for the fused name, or write the precision into the ONNX graph",
        source=f"{_ISSUE}/2164",
    ),
    Meaning(
        name="INT64 weights cast to INT32",
        hint="generated with INT64 weights",
        pattern=r"generated with INT64 weights",
        effect="harmless",
        means="TensorRT before 10 has no INT64: weights became INT32",
        why="indices, shapes and axes fit; it was never the confirmed cause of a wrong result in the issues that name it",
        source=f"{_ISSUE}/2331",
    ),
    Meaning(
        name="INT64 weights clamped",
        hint="outside the range of INT32 was clamped",
        pattern=r"outside the range of INT32 was clamped",
        effect="harmless",
        means="an INT64 constant beyond INT32 was clamped",
        why=_INT64_END,
        code="CST202",
        fix="if the model computes with large integers (hashes, keys), look at them: parityscope lint model.onnx",
        command="parityscope lint model.onnx",
        source="https://github.com/onnx/onnx-tensorrt/issues/587",
    ),
    Meaning(
        name="double weights cast to float",
        hint="double-typed weights",
        pattern=r"double-typed weights",
        effect="may harm",
        means="TensorRT has no FP64: weights became FP32",
        why="harmless unless the model needs more than 24 bits (sums of many terms, time stamps, coordinates)",
        source="https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md",
    ),
    Meaning(
        name="INT64 binding",
        hint="has Int64 binding",
        pattern=r"Make sure (?:input|output) (\S+) has Int64 binding",
        effect="may harm",
        means="since TensorRT 10 this input or output is INT64 where it was INT32 before",
        why="a program that still allocates or copies 4 bytes an element hands over half of the numbers, shifted together",
        code="BND201",
        role="contributing",
        fix="allocate and fill these buffers as int64 (8 bytes an element), by the engine's own types",
        source=f"{_ISSUE}/3894",
    ),
    Meaning(
        name="strong typing",
        hint="trongly typed network",
        pattern=r"[Ss]trongly typed network",
        effect="harmless",
        means="every layer has the types that the ONNX graph gives it",
        why="precision flags are without effect; what the file says is what runs",
    ),
    Meaning(
        name="types chosen at build",
        hint="Tensor DataType is determined at build time",
        pattern=r"Tensor DataType is determined at build time",
        effect="harmless",
        means="the type of inner tensors is chosen by the builder",
        why="weak typing works like that; the types chosen stand in the engine's layers below",
        source=f"{_ISSUE}/252",
    ),
    Meaning(
        name="no FP16 hardware",
        hint="without native FP16 support",
        pattern=r"without native FP16 support",
        effect="may harm",
        means="FP16 was asked of a GPU that has none",
        why="layers run in FP32 or slowly; such a build says nothing about the accuracy of FP16 elsewhere",
        code="ENV204",
    ),
    Meaning(
        name="tensor without INT8 scale",
        hint="Missing scale and zero-point for tensor",
        pattern=r"Missing scale and zero-point for tensor (.+?)(?:,|$)",
        effect="may harm",
        means="this tensor has no range from calibration and stays in a float type",
        why="harmless to accuracy; many of them mean that calibration saw another graph",
        code="QNT201",
        source=f"{_ISSUE}/2462",
    ),
    Meaning(
        name="INT8 without calibration",
        hint="Calibrator is not being used",
        pattern=r"Calibrator is not being used",
        effect="may harm",
        means="INT8 was allowed (--int8 or --best) and no calibration is given",
        why="trtexec then makes ranges up: times are right, outputs of INT8 layers are not",
        code="QNT202",
        role="contributing",
        fix="give a calibration cache, or quantize the ONNX file (Q/DQ), which TensorRT 11 asks for anyway",
        command="trtexec --onnx=model.onnx --int8 --calib=calibration.cache",
        source="https://github.com/lix19937/tensorrt-insight/blob/main/trtexec/mnist/trt_build_best.log",
    ),
    Meaning(
        name="calibration not needed",
        hint="Calibrator won't be used in explicit precision mode",
        pattern=r"Calibrator won't be used in explicit precision mode",
        effect="harmless",
        means="the ONNX file has its own scales (Q/DQ), and they are used",
        why="calibration would have no effect",
        source="https://github.com/lix19937/tensorrt-insight/blob/main/qat/resnet18.log",
    ),
    Meaning(
        name="random input values",
        hint="Using random values for input",
        pattern=r"Using random values for input (\S+)",
        effect="may harm",
        means="trtexec filled this tensor with random numbers (floats in [-1, 1], integers in [-128, 127])",
        why="times are right; outputs say nothing about accuracy on real data, and token ids outside of the vocabulary are "
        "undefined",
        code="DAT202",
        fix="give real data",
        command="trtexec --loadEngine=model.plan --loadInputs=input:input.bin",
        source=f"{_ISSUE}/1323",
    ),
)
