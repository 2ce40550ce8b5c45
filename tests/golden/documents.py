"""Study documents for the report's tests: plain strict-JSON data, made by formulas so that every run gives the same.

`detector` is the PP-OCRv4 text detector in FP16 on a CPU: the verdict, suspect, parameter and trial figures are the
measured ones, the other tensors' errors are plausible curves. `within` is a clean run, `incomplete` one with NaN,
infinities and hostile names.
"""

from __future__ import annotations

import copy
import math
from typing import Any

Document = dict[str, Any]

BLAMED = 1  # place of the blamed BatchNormalization among the detector's tensors
HOSTILE = "</script><b>x"
HOSTILE_QUOTES = "\"'onmouseover=alert(1) \\ & <!-- {{ 7 * 7 }}"
HOSTILE_ESCAPE = "red \x1b[31mname\x07\u202e"
UNICODE = "слой/权重/\N{GREEK SMALL LETTER SIGMA}\u0302"
LONG = "model/" + "very_long_scope_name/" * 20 + "Add_output_0"

_OPS = (
    "Conv",
    "BatchNormalization",
    "HardSwish",
    "Conv",
    "BatchNormalization",
    "Add",
    "Relu",
    "Mul",
    "GlobalAveragePool",
)


def detector(tensors: int = 306) -> Document:
    """Beyond: one BatchNormalization introduces the error, everything after it inherits."""
    rows = [_detector_row(i, tensors) for i in range(tensors)]
    document = {**_frame("ch_PP-OCRv4_det_infer", "openvino:f16", "f16"), "tensors": rows, "verdict": "beyond"}
    document["headline"] = (
        "The candidate's output is 74.0 % away from the reference: one parameter of p2o.BatchNormalization.1 is "
        "beyond FP16's range."
    )
    document["outputs"] = [
        _output(
            rows[-1]["name"],
            rel_l2=0.74,
            verdict="beyond",
            grade="beyond",
            expected=_expected(0.004),
            reason="0.740 is 180 times what FP16 rounding explains on this input (0.00411)",
        )
    ]
    document["suspects"] = [
        _suspect(rows[BLAMED], introduced=20.9, inherited=0.0017, share=0.9981),
        _suspect(rows[7], introduced=0.0042, inherited=0.611, share=0.0007),
        _suspect(rows[12], introduced=0.0031, inherited=0.583, share=0.0004),
    ]
    document["findings"] = [_overflow(rows[BLAMED]), _clip_pattern(rows[-1])]
    document["refuted"] = [
        _evidence(
            "RNG003",
            "The epsilon of the normalisation becomes zero in FP16",
            "refutes",
            0.74,
            0.74,
            change="epsilon rounded to FP16 in the simulation",
            because="1e-5 is representable as a subnormal",
        )
    ]
    document["plots"] = {
        rows[BLAMED]["name"]: _plot(reference_high=3, candidate_high=8, channels=24, worst=310.0),
        rows[-1]["name"]: _plot(reference_high=-1, candidate_high=-1, channels=1, worst=0.74),
    }
    document["graph_views"] = {rows[BLAMED]["name"]: _graph()}
    known = {row["index"]: row for row in rows}
    nodes = range(max(known) + 1)
    document["wiring"] = {
        "names": [str(known.get(i, {}).get("node", f"p2o.Between.{i}")) for i in nodes],
        "operators": [str(known.get(i, {}).get("op_type", "Identity")) for i in nodes],
        # A chain with a branch over every third node.
        "reads": [sorted({i - 1, *([i - 3] if i % 3 == 0 and i > 2 else [])}) if i else [] for i in nodes],
    }
    document["localization"] = {
        "method": "severed replay",
        "observed": tensors,
        "windows": 1,
        "samples": [0],
        "unexplained": 0.0019,
        "skipped": [],
    }
    document["skipped"] = [
        {
            "what": "366 nodes without a tensor of their own in the candidate",
            "asked": False,
            "fix": "",
            "reason": "the engine fused them; their regions were judged at the next observable tensor",
        },
        {
            "what": "BF16 prediction of resize_5",
            "asked": False,
            "reason": "the simulation took over 60 s",
            "fix": "parityscope diagnose … --time 300s",
        },
    ]
    document["unexplained"] = 0.0019
    document["candidate"]["executed_layers"] = [
        {
            "name": f"layer_{i}",
            "layer_type": "Convolution",
            "nodes": [f"p2o.Conv.{i}", f"p2o.Relu.{i}"],
            "precision": "f16" if i % 9 else "f32",
            "kernel": "brgconv_avx512_fp16",
        }
        for i in range(36)
    ]
    return document


def within() -> Document:
    """The same arithmetic with the optimizer off: nothing above FP32 noise."""
    rows = [
        _row(i, f"tensor_{i}", total=2e-7 * (1 + i / 4), introduced=9e-8, inherited=1.5e-7 * (1 + i / 5), floor=3e-7)
        for i in range(8)
    ]
    document = {**_frame("tiny", "ort?optimization=disabled", "f32"), "tensors": rows, "verdict": "within"}
    document["headline"] = "The candidate agrees with the reference: the difference is FP32 rounding."
    document["outputs"] = [
        _output("tensor_7", rel_l2=5.5e-7, verdict="within", grade="f32", expected={"f32": 6e-7}, reason="FP32 noise"),
    ]
    document["candidate"]["spread"] = 0.0
    document["unexplained"] = None
    return document


def incomplete() -> Document:
    """NaN, infinities, missing keys, and names made to break a page or a terminal."""
    rows = [
        _row(0, HOSTILE, total=1e-7, introduced=1e-7, inherited=0.0, floor=2e-7),
        _row(1, HOSTILE_QUOTES, total="Infinity", introduced="NaN", inherited="Infinity", floor=2e-7),
        _row(2, HOSTILE_ESCAPE, total="NaN", introduced=0.0, inherited="NaN", floor=0.0),
        _row(3, UNICODE, total=0.5, introduced=None, inherited=None, floor=None),
        _row(4, LONG, total=0.0, introduced=0.0, inherited=0.0, floor=0.0),
    ]
    rows[1]["nonfinite"] = {"reference": 0, "candidate": 12, "agreeing": 0}
    document = {**_frame(HOSTILE, "saved?path=out.npz", "f32"), "tensors": rows, "verdict": "incomplete"}
    document["headline"] = f"Two samples of {HOSTILE} were not judged."
    document["outputs"] = [
        {"name": HOSTILE, "samples": 1, "rel_l2": "Infinity", "rel_l2_finite": 0.25, "verdict": "incomplete"},
        {"name": LONG, "samples": 0, "rel_l2": None, "reason": "not in the saved outputs"},
    ]
    document["suspects"] = [_suspect(rows[1], introduced="NaN", inherited="Infinity", share=None)]
    document["findings"] = [
        {
            "code": "RNG004",
            "title": "A NaN appears",
            "role": "information",
            "claim": f"{HOSTILE} holds NaN.",
            "confidence": 0.5,
            "confidence_from": "one of two experiments",
            "site": None,
            "share": None,
            "evidence": [_evidence("RNG004", HOSTILE, "inconclusive", "NaN", "-Infinity")],
            "repairs": [{"repair": "none", "text": HOSTILE_QUOTES, "command": f"echo '{HOSTILE}'", "trial": None}],
            "details": {HOSTILE: HOSTILE_QUOTES},
        }
    ]
    document["plots"] = {HOSTILE_QUOTES: {"channels": [[3, "Infinity"], [1, 0.2]]}, UNICODE: {}}
    document["graph_views"] = {
        HOSTILE_QUOTES: {
            "nodes": [
                {"id": HOSTILE, "label": HOSTILE, "op_type": "Log", "introduced": None, "inherited": None},
                {"id": LONG, "label": LONG, "op_type": "Div", "introduced": "NaN", "inherited": 0, "is_suspect": True},
            ],
            "edges": [[HOSTILE, LONG, HOSTILE_QUOTES], [LONG, HOSTILE, "a cycle"], ["nowhere", LONG, "dangling"]],
        }
    }
    document["skipped"] = [
        {"what": f"sample 3 of {HOSTILE}", "reason": "it holds NaN", "fix": "remove it from the data", "asked": True}
    ]
    for key in ("timings", "environment", "localization", "unexplained", "created"):
        document.pop(key, None)
    return document


def large(nodes: int = 3000) -> Document:
    """A network of many nodes with names as exporters make them, all of which were compared."""
    document = detector(nodes)
    rows = document["tensors"]
    for index, row in enumerate(rows):
        node = f"/model/backbone/layers.{index // 40}/self_attention/{row['op_type']}_{index}"
        row |= {"index": index, "node": node, "name": f"{node}_output_0", "candidate_name": f"{node}_output_0"}
    document["model"]["nodes"] = nodes
    document["wiring"] = {
        "names": [row["node"] for row in rows],
        "operators": [row["op_type"] for row in rows],
        "reads": [
            [other for other in (index - 1, index - 7 if index % 9 == 5 else -1) if other >= 0]
            for index in range(nodes)
        ],
    }
    return document


def _frame(model: str, candidate: str, declared: str) -> Document:
    side: Document = {
        "backend": "onnxruntime",
        "precision": "f32",
        "executed": "f32",
        "version": "1.23.2",
        "seconds": 0.19,
        "environment": {"threads": "2"},
    }
    backend = candidate.partition(":")[0].partition("?")[0]
    return {
        "schema": "parityscope/1",
        "tool": {"name": "parityscope", "version": "0.1.0"},
        "created": "2026-11-21T05:00:00Z",
        "command": f"parityscope diagnose {model}.onnx --candidate '{candidate}' --inputs page.npz",
        "model": {
            "name": model,
            "path": f"models/{model}.onnx",
            "sha256": "d2a7720d45a5"[:12] + "0" * 52,
            "nbytes": 4745517,
            "nodes": 672,
            "opset": 14,
            "producer": "PaddlePaddle",
            "inputs": [{"name": "x", "dtype": "float32", "shape": ["N", 3, "H", None]}],
            "outputs": [{"name": "sigmoid_0.tmp_0", "dtype": "float32", "shape": ["N", 1, "H", "W"]}],
        },
        "reference": {"target": "ort", **copy.deepcopy(side)},
        "candidate": {
            "target": candidate,
            **copy.deepcopy(side),
            "backend": backend,
            "precision": declared,
            "executed": declared,
            "declared": declared,
            "spread": 0.0,
            "disturbance": 0.0,
        },
        "environment": {"cpu": "x86-64 with AVX512-FP16", "os": "Linux", "python": "3.11.7"},
        "inputs": {"origin": "page.npz", "samples": 1, "generated": False, "sha256": "ab" * 32, "names": ["x"]},
        "policy": {
            "declared": declared,
            "declared_reason": f"the target {candidate} says so",
            "budgets": [{"output": "", "metric": "rel_l2", "limit": 0.01, "reason": "boxes move by under one pixel"}],
        },
        "outputs": [],
        "tensors": [],
        "suspects": [],
        "plots": {},
        "graph_views": {},
        "localization": None,
        "findings": [],
        "refuted": [],
        "skipped": [],
        "unexplained": None,
        "timings": {"reference": 0.41, "candidate": 2.31, "comparison": 0.62, "replay": 0.44, "experiments": 3.9},
    }


def _row(index: int, name: str, *, total: Any, introduced: Any, inherited: Any, floor: Any) -> Document:
    return {
        "name": name,
        "node": f"node of {name}",
        "op_type": _OPS[index % len(_OPS)],
        "index": index,
        "dtype": "float32",
        "shape": [1, 16, 96, 192],
        "rel_l2": total,
        "introduced": introduced,
        "inherited": inherited,
        "floor": floor,
        "max_abs": total,
        "worst_index": [0, 3, 11, 50],
        "gain": None,
        "grade": "f32",
        "expected": {},
        "ulp_mean": 1.5,
        "is_output": False,
        "nonfinite": {"reference": 0, "candidate": 0, "agreeing": 0},
        "worst_channel": {"index": index % 16, "rel_l2": total, "ratio": 2.0},
        "candidate_name": name,
        "how": "name",
    }


def _wave(index: int, seed: float) -> float:
    """A deterministic value in (0, 1) that looks irregular: the fractional part of a large sine."""
    return math.modf(abs(math.sin(index * 12.9898 + seed) * 43758.5453))[0]


def _expected(f16: float) -> Document:
    return {"f32": f16 / 6000, "tf32": f16 / 1.2, "f16": f16, "bf16": f16 * 8}


def _detector_row(i: int, tensors: int) -> Document:
    depth = i / tensors
    f16 = 3e-4 * (1 + 9 * depth) * 10 ** (0.5 * _wave(i, 1.0) - 0.25)
    introduced = 2.2e-4 * 10 ** (1.2 * _wave(i, 2.0) - 0.6)
    inherited = 0.0 if i == 0 else 0.0017 if i == BLAMED else 0.35 + 0.5 * _wave(i // 4, 3.0) + 0.2 * _wave(i, 4.0)
    introduced = {BLAMED: 20.9, 7: 0.0042, 12: 0.0031}.get(i, introduced)
    if i == tensors - 1:
        inherited = 0.7399
    total = math.hypot(introduced, inherited)
    name = {0: "conv2d_0.tmp_0", BLAMED: "batch_norm_0.tmp_3", tensors - 1: "sigmoid_0.tmp_0"}.get(i, f"p2o.value.{i}")
    op_type = "Sigmoid" if i == tensors - 1 else _OPS[i % len(_OPS)]
    row = _row(i * 2, name, total=total, introduced=introduced, inherited=inherited, floor=6e-8 * (1 + 5 * depth))
    row |= {
        "node": f"p2o.{op_type}.{1 if i == BLAMED else i}",
        "op_type": op_type,
        "expected": _expected(f16),
        "gain": 1.02,
        "grade": "f16" if total < 2 * f16 else "beyond",
        "is_output": i == tensors - 1,
    }
    return row


def _output(name: str, *, rel_l2: float, verdict: str, grade: str, expected: Document, reason: str) -> Document:
    return {
        "name": name,
        "samples": 1,
        "rel_l2": rel_l2,
        "rel_l2_finite": rel_l2,
        "max_abs": 1.3 * rel_l2,
        "worst_index": [0, 0, 112, 417],
        "cosine": math.sqrt(max(0.0, 1 - rel_l2**2)),
        "snr_db": -20 * math.log10(rel_l2),
        "norm_ratio": 1 + 0.1 * rel_l2,
        "grade": grade,
        "verdict": verdict,
        "nonfinite": {"reference": 0, "candidate": 0, "agreeing": 0},
        "expected": expected,
        "per_sample": [rel_l2],
        "worst_sample": 0,
        "measurements": {"p99_9": {"value": 1.2 * rel_l2, "unit": "1"}},
        "statistics": {},
        "reason": reason,
    }


def _suspect(row: Document, *, introduced: Any, inherited: Any, share: Any) -> Document:
    return {
        "site": {
            "tensor": row["name"],
            "node": row["node"],
            "op_type": row["op_type"],
            "index": row["index"],
            "scope": "",
        },
        "introduced": introduced,
        "inherited": inherited,
        "gain": row["gain"],
        "angle": 0.01,
        "share": share,
        "injected": None if share is None else 0.738,
        "floor": row["floor"],
        "region": [row["node"]],
        "introduced_nonfinite": 0,
        "explained_by": [{"hypothesis": "f16 saturation of weights", "share": 0.9987}],
    }


def _evidence(
    check: str, claim: str, outcome: str, before: Any, after: Any, *, change: str = "one change", because: str = "seen"
) -> Document:
    return {
        "experiment": {
            "check": check,
            "claim": claim,
            "change": change,
            "measure": "relative L2 of the layer's own output",
            "if_true": "the error of the layer falls to FP16 rounding (below 0.005)",
            "if_false": "the error stays as it is",
            "cost_s": 0.31,
        },
        "outcome": outcome,
        "before": before,
        "after": after,
        "because": because,
    }


def _overflow(row: Document) -> Document:
    return {
        "code": "RNG001",
        "title": "A parameter is beyond FP16's range",
        "role": "cause",
        "claim": (
            "The running variance batch_norm2d_0.w_2 of p2o.BatchNormalization.1 holds 97,903,600; FP16 ends at "
            "65,504, so it becomes infinite and the layer's scale becomes zero for that channel."
        ),
        "confidence": 0.99,
        "confidence_from": "2 of 2 experiments support it and it explains 99.8 % of the error",
        "site": {
            "tensor": row["name"],
            "node": row["node"],
            "op_type": row["op_type"],
            "index": row["index"],
            "scope": "",
        },
        "share": 0.9981,
        "evidence": [
            _evidence(
                "RNG001",
                "Clamping the parameter to 65504 reproduces the layer's error",
                "supports",
                20.9,
                0.0211,
                change="the reference runs with batch_norm2d_0.w_2 clamped to FP16's range",
                because="the clamped reference differs from the candidate by FP16 rounding only",
            ),
            _evidence(
                "RNG001",
                "In FP32 the layer is right",
                "supports",
                0.74,
                0.0046,
                change="this layer alone computed in FP32, everything else in FP16",
                because="the output error falls 161 times, to what FP16 rounding explains",
            ),
        ],
        "repairs": [
            {
                "repair": "fold BatchNormalization in FP32",
                "text": "Fold it into the convolution before it, in FP32: every constant is then in range.",
                "command": "python -m onnxsim ch_PP-OCRv4_det_infer.onnx folded.onnx\n"
                "parityscope diagnose folded.onnx --candidate openvino:f16 --inputs page.npz",
                "trial": {
                    "before": 0.74,
                    "after": 0.0046,
                    "verdict": "within",
                    "note": "tried on a copy, same candidate",
                },
            },
            {
                "repair": "keep in FP32",
                "text": "Keep p2o.BatchNormalization.1 in FP32.",
                "command": "",
                "trial": None,
            },
        ],
        "details": {"parameter": "batch_norm2d_0.w_2", "value": 97903600.0, "limit": 65504, "index": [5]},
    }


def _clip_pattern(row: Document) -> Document:
    return {
        "code": "RNG007",
        "title": "The error sits in text regions",
        "role": "information",
        "claim": "94.1 % of the output's error lies in 3.20 % of its elements.",
        "confidence": 0.8,
        "confidence_from": "chosen for patterns",
        "share": None,
        "evidence": [],
        "repairs": [],
        "details": {},
        "site": {
            "tensor": row["name"],
            "node": row["node"],
            "op_type": row["op_type"],
            "index": row["index"],
            "scope": "",
        },
    }


def _bell(centre: float, spread: float, low: int, high: int, total: float) -> list[list[int]]:
    counted = [[e, round(total * math.exp(-(((e - centre) / spread) ** 2)))] for e in range(low, high + 1)]
    return [[e, n] for e, n in counted if n]


def _plot(*, reference_high: int, candidate_high: int, channels: int, worst: float) -> Document:
    positive = _bell(reference_high - 3, 4.0, -24, reference_high, 4e5)
    negative = _bell(reference_high - 4, 4.0, -24, reference_high, 3e5) if channels > 1 else []
    return {
        "reference": {"negative": negative, "zero": 1200, "positive": positive},
        "candidate": {
            "negative": negative,
            "zero": 14000,
            "positive": [*positive, *([[candidate_high, 41]] if candidate_high > reference_high else [])],
        },
        "error": _bell(reference_high - 9, 3.0, -30, candidate_high, 2e5),
        "channels": [[(5 + 7 * i) % channels, worst * 0.55**i] for i in range(channels)],
    }


def _graph() -> Document:
    chain = [
        ("p2o.Conv.0", "Conv", 2e-4, 0.0),
        ("p2o.BatchNormalization.1", "BatchNormalization", 20.9, 0.0017),
        ("p2o.HardSwish.2", "HardSwish", 3e-4, 0.6),
        ("p2o.Conv.3", "Conv", 5e-4, 0.58),
        ("p2o.Mul.4", "Mul", 2e-4, 0.61),
        ("p2o.Add.5", "Add", 0.0, 0.6),
        ("p2o.Relu.6", "Relu", None, None),
    ]
    nodes = [
        {
            "id": name,
            "label": name,
            "op_type": op_type,
            "introduced": introduced,
            "inherited": inherited,
            "is_suspect": op_type == "BatchNormalization",
        }
        for name, op_type, introduced, inherited in chain
    ]
    pairs = [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6)]
    return {"nodes": nodes, "edges": [[chain[a][0], chain[b][0], f"{chain[a][0]}_out"] for a, b in pairs]}
