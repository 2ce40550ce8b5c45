"""Logs of TensorRT: quoted lines are those of the public issues named beside them; TensorRT-RTX writes whole logs here."""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import parser

from command_line import in_this_process
from parityscope.checks import known_checks
from parityscope.errors import ParityError
from parityscope.languages import say_in_language, speak_language
from parityscope.linting import known_rules
from parityscope.logs import (
    MEANINGS,
    compare_logs,
    explain_line,
    find_between,
    find_in_log,
    find_pair,
    layer_of,
    read_log,
)
from parityscope.logs.facts import version_of
from parityscope.logs.lines import split_prefix
from parityscope.logs.names import metadata_nodes, name_nodes, parts_of
from parityscope.logs.pages import log_codes, log_page
from parityscope.report.log import FORMS, log_document

# Lines as people quoted them in public: where, and the meaning, effect and fact that each must have.
LINES = json.loads((Path(__file__).parent / "golden" / "tensorrt_lines.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("quoted", LINES, ids=[f"{each['name']} {each['url'].rpartition('/')[2]}" for each in LINES])
def test_line_quoted_in_public_has_its_meaning(quoted: dict[str, str]) -> None:
    severity, text = split_prefix(quoted["line"])
    assert severity in {"V", "I", "W", "E"}
    explained = explain_line(text)
    assert explained is not None
    meaning, fact = explained
    assert (meaning.name, meaning.effect, fact) == (quoted["name"], quoted["effect"], quoted["fact"])


def test_every_quoted_line_is_read_from_a_log(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "\n".join(each["line"] for each in LINES)))
    assert {noted.meaning.name for noted in log.noted} == {each["name"] for each in LINES}
    assert not log.unexplained


def test_meanings_explain_themselves() -> None:
    names = [meaning.name for meaning in MEANINGS]
    assert len(set(names)) == len(names)
    for meaning in MEANINGS:
        assert meaning.means
        assert meaning.why
        assert meaning.effect in {"harmful", "may harm", "harmless"}
        assert meaning.role != "cause" or (meaning.code and meaning.fix), meaning.name


def test_every_finding_of_a_log_is_told_in_chinese(tmp_path: Path) -> None:
    """Four words on end are a sentence that was left as it is, unless the log itself says them."""
    text = "\n".join(each["line"] for each in LINES)
    left = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,} [a-z]{2,}")
    found = find_in_log(read_log(written(tmp_path, text)))
    assert len(found) > 10
    with speak_language("zh"):
        told = [
            say_in_language(each) for one in found for each in (one.title, one.claim, *(r.text for r in one.repairs))
        ]
    assert [one for one in told if not re.search("[\u4e00-\u9fff]", one)] == []
    assert [one for one in told if (said := left.search(one)) and said.group() not in text] == []


def test_every_code_has_a_page_and_no_other_does() -> None:
    taken = {*known_checks(), *known_rules()}
    assert not taken & set(log_codes())  # a code means one thing
    for code in log_codes():
        assert len(log_page(code)) > 100
    assert "Pow" in in_this_process("explain", "RNG204", folder=Path()).stdout


def test_weights_with_names_and_kinds(tmp_path: Path) -> None:
    # The first four lines: https://github.com/NVIDIA/TensorRT/issues/4022; the counts of the last two:
    # https://github.com/mingj2021/segment-anything-tensorrt/issues/11, the overflow's words are TensorRT's own.
    text = """\
[08/20/2024-20:57:50] [W] [TRT] TensorRT encountered issues when converting weights between types and that could affect accuracy.
[08/20/2024-20:57:50] [W] [TRT] Check verbose logs for the list of affected weights.
[08/20/2024-20:57:50] [W] [TRT] - 111 weights are affected by this issue: Detected subnormal FP16 values.
[08/20/2024-20:57:50] [V] [TRT]   List of affected weights: /d.0/conv1/Conv.weight, /d.0/conv3/Conv + d.0.beta + /d.0/Mul_1.weight
[TRT] [W] - 18 weights are affected by this issue: Detected values less than smallest positive FP16 subnormal value and \
converted them to the FP16 minimum subnormalized value.
[TRT] [W] - 2 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 and converted them to \
the closest finite FP16 value.
[TRT] [V]   List of affected weights: bn.weight, bn.bias
"""
    log = read_log(written(tmp_path, text))
    found = {issue.kind: (issue.count, issue.names) for issue in log.weights}
    assert found == {
        "overflow": (2, ("bn.weight", "bn.bias")),
        "underflow": (18, ()),
        "subnormal": (111, ("/d.0/conv1/Conv.weight", "/d.0/conv3/Conv + d.0.beta + /d.0/Mul_1.weight")),
    }
    findings = {finding.code: finding for finding in find_in_log(log)}
    assert findings["RNG201"].role == "cause"
    assert "bn.weight" in findings["RNG201"].claim
    assert findings["RNG202"].role == findings["RNG203"].role == "information"


def test_weights_listed_on_the_next_line(tmp_path: Path) -> None:
    # https://github.com/NVIDIA/TensorRT/issues/2902
    text = """\
[06/03/2024-19:09:52] [W] [TRT] - 31 weights are affected by this issue: Detected subnormal FP16 values.
[06/03/2024-19:09:52] [V] [TRT]   List of affected weights:
/img_backbone/conv1/Conv + /img_backbone/relu/Relu.weight, /img_backbone/layer1/layer1.0/conv1/Conv.weight
"""
    (issue,) = read_log(written(tmp_path, text)).weights
    assert issue.names == (
        "/img_backbone/conv1/Conv + /img_backbone/relu/Relu.weight",
        "/img_backbone/layer1/layer1.0/conv1/Conv.weight",
    )


def test_weights_in_the_form_of_8_4(tmp_path: Path) -> None:
    # https://github.com/blakeblackshear/frigate/issues/5268: the same weight is named many times, and counts once.
    one = """\
[01/27/2023-17:29:57] [TRT] [W] Weights [name=024_convolutional + 024_convolutional_bn.weight] had the following \
issues when converted to FP16:
[01/27/2023-17:29:57] [TRT] [W]  - Subnormal FP16 values detected.
[01/27/2023-17:29:57] [TRT] [W] If this is not the desired behavior, please modify the weights or retrain with \
regularization to reduce the magnitude of the weights.
"""
    (issue,) = read_log(written(tmp_path, one * 3)).weights
    assert (issue.kind, issue.count, issue.names) == (
        "subnormal",
        1,
        ("024_convolutional + 024_convolutional_bn.weight",),
    )


def test_layers_of_8_to_10(tmp_path: Path) -> None:
    # https://github.com/NVIDIA/TensorRT/issues/2011 (8.2) and the form of 8.6 and newer, with a region of Myelin.
    text = """\
[05/27/2022-10:00:00] [V] [TRT] Engine Layer Information:
Layer(Reformat): Reformatting CopyNode for Input Tensor 0 to (Unnamed Layer* 0) [Convolution] + (Unnamed Layer* 1) [Scale], \
Tactic: 1002, net_inout_fp16[Half(1,256,128,150)] -> \
Reformatted Input Tensor 0 to (Unnamed Layer* 0) [Convolution][Half(1,256,128,150)]
Layer(CaskConvolution): Conv_3 + Relu_4, Tactic: 8839784824303350101, a[Half(1,64,128,150)], b[Float(1,64,128,150)] -> \
c[Half(1,64,128,150)]
Layer(Myelin): {ForeignNode[/Constant_7_output_0 + ONNXTRT_Broadcast.../Einsum_1]}, Tactic: 0x0000000000000000, qkv \
(Half[1,384,16384]) -> out (Half[1,128,16384])
"""
    log = read_log(written(tmp_path, text))
    reformat, conv, region = log.layers
    assert (reformat.kind, reformat.nodes, log.reformats) == ("Reformat", (), 1)
    assert conv.nodes == ("Conv_3", "Relu_4")
    assert [(each.name, each.dtype) for each in conv.inputs] == [("a", "Half"), ("b", "Float")]
    assert conv.types == ("Half",)
    assert region.nodes == ("/Constant_7_output_0", "/Einsum_1")
    assert region.inputs[0].dimensions == "1,384,16384"
    assert log.precision == "Half"


def test_detailed_layer_of_10(tmp_path: Path) -> None:
    # The layout of https://github.com/NVIDIA/TensorRT/issues/4020, as the logger prints it in one line.
    text = (
        "[V] Layers:\nName: conv3 + bn3 + relu3, LayerType: CaskConvolution, "
        "Inputs: [ { Name: act0, Location: Device, Dimensions: [1,512,7,7], "
        "Format/Datatype: Thirty-two wide channel vectorized row major Int8 format }], "
        "Outputs: [ { Name: relu3_out, Location: Device, Dimensions: [1,512,7,7], "
        "Format/Datatype: Channel major FP16 format where channel % 8 == 0 }], ParameterType: Convolution, Kernel: [3,3], "
        "TacticName: sm80_xmma_fprop_f16f16_f32, TacticValue: 0xcd, StreamId: 0, "
        "Metadata: [ONNX Layer: conv3]\x1e[ONNX Layer: bn3]\x1e[ONNX Layer: relu[3]]\n"
    )
    (layer,) = read_log(written(tmp_path, text)).layers
    assert layer.nodes == ("conv3", "bn3", "relu[3]")
    assert (layer.told, layer.types, layer.tactic) == (True, ("Half",), "sm80_xmma_fprop_f16f16_f32")
    assert layer.inputs[0].dtype == "Int8"


def test_an_engine_that_is_printed_twice_counts_once(tmp_path: Path) -> None:
    # As trtexec 8.5 does with --verbose and --dumpLayerInfo together.
    plain = "Layer(CaskConvolution): a + b, Tactic: 0x1, x[Half(1,3)] -> y[Half(1,3)]\n"
    detailed = (
        "Name: a + b, LayerType: CaskConvolution, Inputs: [ { Name: x, Location: Device, Dimensions: [1,3], Format/Datatype: "
        "Row major linear FP16 format }], Outputs: [ { Name: y, Location: Device, Dimensions: [1,3], Format/Datatype: "
        "Row major linear FP32 }], TacticName: sm80_xmma, Metadata: \n"
    )
    text = f"[V] [TRT] Engine Layer Information:\n{plain}[I] Layer Information:\n[I] Layers:\n{detailed}{detailed}"
    (layer,) = read_log(written(tmp_path, text)).layers
    assert (layer.nodes, layer.types, layer.tactic) == (("a", "b"), ("Float",), "sm80_xmma")


def test_names_of_fused_layers() -> None:
    assert name_nodes(
        "PWN(PWN(PWN(PWN(Softplus_1), PWN(Tanh_2)), Mul_3), onnx::Add_7 + (Unnamed Layer* 5) [Shuffle] + Add_5)"
    ) == (*("Softplus_1", "Tanh_2", "Mul_3", "onnx::Add_7", "Add_5"),)  # https://github.com/NVIDIA/TensorRT/issues/2572
    assert parts_of("{ForeignNode[a + b...c]}") == ("a", "b", "c")
    assert name_nodes("Reformatting CopyNode for Input Tensor 0 to Conv_0") == ()
    assert name_nodes("p2o.Conv.34_myl0_60") == ("p2o.Conv.34",)
    assert metadata_nodes("[ONNX Layer: a][ONNX Layer: b/c]") == ("a", "b/c")


def test_facts_of_trtexec(tmp_path: Path) -> None:
    # Lines of https://github.com/NVIDIA/TensorRT/issues/3747, /3842, /4036 and /4177.
    text = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=m.onnx --fp16 --layerPrecisions=conv1:fp32 --verbose
[03/28/2024-07:10:12] [I] Precision: FP32+FP16
[03/28/2024-07:10:12] [I] Selected Device: NVIDIA GeForce RTX 2080
[03/28/2024-07:10:12] [I] Compute Capability: 7.5
[03/28/2024-07:10:12] [I] TensorRT version: 8.6.1
[03/28/2024-07:10:12] [V] [TRT] ConvReluFusion: Fusing conv1 with relu1
[03/28/2024-07:10:12] [V] [TRT] Engine Layer Information:
Layer(CaskConvolution): conv1 + relu1, Tactic: 0x1, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]
[03/28/2024-07:10:12] [I] Created input binding for x with dimensions 1x3x8x8
[03/28/2024-07:10:12] [I] Using random values for input x
[10/03/2024-10:47:59] [I] Throughput: 130.298 qps
[10/03/2024-10:47:59] [I] GPU Compute Time: min = 5.34595 ms, max = 13.3388 ms, mean = 7.58404 ms, median = 7.14139 ms
[05/08/2024-14:05:14] [I] === Profile (2094 iterations ) ===
[05/08/2024-14:05:14] [I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer
[05/08/2024-14:05:14] [I]       47.82       0.0228       0.0225       1.6   conv1 + relu1
[05/08/2024-14:05:14] [I]     3010.20       1.4375       1.4336     100.0   Total
&&&& PASSED TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=m.onnx --fp16 --layerPrecisions=conv1:fp32 --verbose
"""
    log = read_log(written(tmp_path, text))
    assert (log.tool, log.outcome, log.versions["TensorRT"]) == ("trtexec", "passed", "8.6.1")
    assert log.facts["GPU"] == "NVIDIA GeForce RTX 2080"
    assert log.facts["precision asked for"] == "FP32+FP16"
    assert log.tf32.startswith("on")
    assert [(fusion.rule, fusion.parts) for fusion in log.fusions] == [("ConvReluFusion", ("conv1", "relu1"))]
    assert [(tensor.name, tensor.dimensions) for tensor in log.tensors] == [("x", "1x3x8x8")]
    assert dict(log.layer_times) == {"conv1 + relu1": 0.0228}
    assert ("GPU Compute Time, median", 7.14139) in [(each.what, each.milliseconds) for each in log.timings]
    assert not log.skipped
    codes = {finding.code: finding for finding in find_in_log(log)}
    # FP32 was asked of conv1, and the layer that it was fused into writes Half.
    assert "conv1 (asked fp32, writes Half)" in codes["CST204"].claim
    assert codes["DAT202"].details["names"] == ["x"]


def test_an_option_whose_name_has_digits_is_read_whole(tmp_path: Path) -> None:
    banner = "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx"
    (tmp_path / "off").mkdir()
    ours, off = (
        read_log(written(folder, f"{banner}{words}\n"))
        for folder, words in ((tmp_path, ""), (tmp_path / "off", " --noTF32"))
    )
    assert off.flags == ("--onnx=m.onnx", "--noTF32")
    assert (ours.tf32, off.tf32) == ("on (trtexec's default)", "off (--noTF32)")
    assert [finding.code for finding in find_between(compare_logs(ours, off))] == ["ACC202"]


@pytest.mark.parametrize(
    ("number", "version"),
    [("8601", "8.6.1"), ("8200", "8.2.0"), ("100001", "10.0.1"), ("101401", "10.14.1"), ("110400", "11.4.0")],
)
def test_version_numbers(number: str, version: str) -> None:
    assert version_of(number) == version


CUT = "&&&& RUNNING TensorRT.trtexec [TensorRT v101401] [b48] # trtexec --onnx=m.onnx\n[07/30/2026-10:00:26] [I] Model: m.onnx\n"


def test_cut_log_says_so(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, CUT))
    assert "&&&& PASSED" in log.skipped[0].reason
    assert log_document(log, find_in_log(log))["verdict"] == "incomplete"
    half = read_log(written(tmp_path, CUT[:-20]))
    assert any(skip.reason == "its last line is cut" for skip in half.skipped)


def test_log_without_its_beginning_says_so(tmp_path: Path) -> None:
    text = "[I] [TRT] Engine generation completed in 9.5 seconds.\n&&&& PASSED TensorRT.trtexec [TensorRT v101401] # trtexec\n"
    after = read_log(written(tmp_path, "[V] [TRT] After vertical fusions: 60 layers\n"))
    assert after.skipped[0].what == "the beginning of the log"
    assert next(skip.what for skip in read_log(written(tmp_path, text)).skipped) == "the beginning of the log"
    whole = read_log(written(tmp_path, text.replace("PASSED", "RUNNING").splitlines()[-1] + "\n" + text))
    assert "the beginning of the log" not in [skip.what for skip in whole.skipped]


FAILED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v101401] [b48] # trtexec --onnx=m.onnx
[07/30/2026-10:00:27] [E] Error[4]: flux capacitor
&&&& FAILED TensorRT.trtexec [TensorRT v101401] [b48] # trtexec --onnx=m.onnx
"""
PASSED = CUT + "&&&& PASSED TensorRT.trtexec [TensorRT v101401] [b48] # trtexec --onnx=m.onnx\n"
OVERFLOW = (
    "[W] [TRT] - 1 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16.\n"
)


@pytest.mark.parametrize(
    ("text", "role", "verdict"),
    [
        (FAILED, "cause", "beyond"),
        (PASSED + FAILED, "cause", "beyond"),
        (FAILED + PASSED, "contributing", "within"),  # a later run passed
        (OVERFLOW + FAILED, "contributing", "beyond"),  # another line is the cause
        (PASSED, "", "within"),
        ("[V] [TRT] Original: 9 layers\n[E] [TRT] flux capacitor\n", "cause", "beyond"),
        ("[E] [TRT] flux capacitor\n", "", "incomplete"),  # nothing says that it was a build
    ],
)
def test_failed_run_is_never_said_to_be_fine(tmp_path: Path, text: str, role: str, verdict: str) -> None:
    log = read_log(written(tmp_path, text))
    found = {finding.code: finding for finding in find_in_log(log)}
    assert (found["RUN202"].role if "RUN202" in found else "") == role
    assert not role or "flux capacitor" in found["RUN202"].claim
    assert log_document(log, tuple(found.values()))["verdict"] == verdict


def test_run_that_ended_says_nothing_about_one_that_is_cut(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, PASSED + CUT))
    assert log.outcome == "unknown"
    assert any("&&&& PASSED" in skip.reason for skip in log.skipped)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"ftrt\0\0\0\0", "a TensorRT engine"),
        (b"vtrt\2\0\0\0", "TensorRT-RTX"),
        (b"\x1f\x8b\x08\0", r"compressed \(gzip\) and damaged"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(b"abc\0def", mtime=0), "binary"),
        ("Epoch 1: loss 0.3".encode("utf-16"), "none of its 1 lines"),
        (b"BZh91AY", "bzip2"),
        (b"abc\0def", "binary"),
        (b"Epoch 1: loss 0.3\nEpoch 2: loss 0.2\n", "none of its 2 lines"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.log"
    path.write_bytes(content)
    with pytest.raises(ParityError, match=said) as caught:
        read_log(path)
    assert caught.value.fix


def test_unknown_warning_is_told_once(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "[W] [TRT] flux capacitor at 12 %\n[W] [TRT] flux capacitor at 13 %\n"))
    assert [line.text for line in log.unexplained] == ["flux capacitor at 12 %"]


def test_kernels_that_name_their_arithmetic(tmp_path: Path) -> None:
    # Kernel names as the inspector prints them; types stand in the order operands, result, sum.
    layer = "Name: {0}, LayerType: gemm, Inputs: [], Outputs: [], TacticName: {1}, Metadata: [ONNX Layer: {0}]\n"
    kernels = {
        "a": "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc",
        "b": "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64",
        "c": "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64",
    }
    log = read_log(written(tmp_path, "[V] Layers:\n" + "".join(layer.format(*item) for item in kernels.items())))
    found = {finding.code: finding.details["layers"] for finding in find_in_log(log)}
    assert found == {"ACC203": ["a"], "ACC204": ["b"]}


def test_prefixes_of_others_and_colours() -> None:
    # The first is https://github.com/SthPhoenix/InsightFace-REST/issues/84, from a container.
    behind = "face_1             | [05/02/2022-15:17:45] [TRT] [E] 6: The engine plan file is not compatible"
    assert split_prefix(behind) == ("E", "6: The engine plan file is not compatible")
    assert split_prefix("\x1b[38;5;11m[W] Make sure input x has Int64 binding.\x1b[0m") == (
        "W",
        "Make sure input x has Int64 binding.",
    )
    assert split_prefix("no prefix [TRT] here") == ("", "no prefix [TRT] here")


# What docker, compose, kubectl, the node's log files, journald, GitHub's gh and PowerShell put before a line.
PREFIXES = [
    "2026-08-20T20:57:40.123456789Z ",
    "2026-08-20T20:57:40+02:00 ",
    "trt-1              | ",
    "builder | ",
    "\x1b[36mtrt-1  | \x1b[0m",
    "trt-1  | 2026-08-20T20:57:40.123456789Z ",
    "[pod/trt-0/builder] ",
    "2026-08-20T20:57:40.123456789Z stderr F ",
    "Aug 20 20:57:40 gpu-box trtexec[1234]: ",
    "2026-08-20T20:57:40+0200 gpu-box trtexec[1234]: ",
    "build\tBuild the engine\t2026-08-20T20:57:40.1234567Z ",
    "trtexec.exe : ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_line_of_a_log_is_read_behind_a_prefix_of_others(tmp_path: Path, prefix: str) -> None:
    text = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
[08/20/2024-20:57:40] [I] TF32 is enabled by default. Add --noTF32 flag to further improve accuracy with some performance cost.
[08/20/2024-20:57:40] [V] [TRT] Tactic: 0x0000000000000000 Time: 0.012
[08/20/2024-20:57:51] [V] [TRT] Engine Layer Information:
Layer(CaskConvolution): Conv_0 + Relu_1, Tactic: 0x1, x[Half(1,3,8,8)] -> y[Half(1,8,8,8)]
[08/20/2024-20:57:52] [I] [TRT] Engine generation completed in 9.5 seconds.
&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=det.onnx --fp16 --verbose
"""
    plain = read_log(written(tmp_path, text))
    behind = read_log(written(tmp_path, "".join(prefix + line for line in text.splitlines(keepends=True))))
    assert plain.layers
    assert plain.versions["TensorRT"] == "10.3.0"
    assert replace(behind, nbytes=plain.nbytes) == plain


def test_polygraphy_is_no_container(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "[I] RUNNING | Command: polygraphy run m.onnx\n[I] PASSED | Runtime: 1.2s\n"))
    assert (log.tool, log.outcome) == ("polygraphy", "passed")


@pytest.mark.parametrize("lines", [1, 400], ids=["one block", "several blocks"])
@pytest.mark.parametrize("way", ["crlf", "gzip", "two gzip files", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_log_is_read_however_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, lines: int
) -> None:
    monkeypatch.setattr("parityscope.logs.lines.BLOCK", 1001)  # odd: in the middle of a letter of UTF-16
    text = CUT + "".join(f"[V] ConvReluFusion: Fusing größe{i} with b{i}\n" for i in range(lines))
    ways = {
        "crlf": lambda: text.replace("\n", "\r\n").encode(),
        "gzip": lambda: gzip.compress(text.encode()),
        "two gzip files": lambda: gzip.compress(text[:99].encode()) + gzip.compress(text[99:].encode()),
    }
    plain = read_log(written(tmp_path, text))
    path = tmp_path / "build.log"
    path.write_bytes(ways[way]() if way in ways else text.replace("\n", "\r\n").encode(way))
    log = read_log(path)
    assert len(log.fusions) == lines
    assert replace(log, nbytes=plain.nbytes) == plain


def test_damaged_gzip_is_read_to_the_damage(tmp_path: Path) -> None:
    text = CUT + "".join(f"[V] ConvReluFusion: Fusing a{i * i * i} with b{i * 7919}\n" for i in range(3000))
    path = tmp_path / "build.log.gz"
    path.write_bytes(gzip.compress(text.encode())[:-4000])
    log = read_log(path)
    assert 0 < len(log.fusions) < 3000
    assert any("damaged" in skip.reason and skip.fix for skip in log.skipped)


def test_several_builds_in_one_log_are_told(built: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "both.log"
    path.write_bytes(built["float"].read_bytes() + built["float16"].read_bytes())
    log = read_log(path)
    assert (log.builds, log.finished, log.unfinished) == (2, 2, False)
    assert log.layers == tuple(
        replace(layer, line=layer.line + read_log(built["float"]).lines) for layer in read_log(built["float16"]).layers
    )
    assert "2; layers, inputs and outputs are the last one's" in FORMS.render(
        log_document(log, find_in_log(log)), "text"
    )


def test_no_kind_of_entry_grows_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parityscope.logs.taking.MOST", 3)
    log = read_log(written(tmp_path, "".join(f"[V] ConvReluFusion: Fusing a{i} with b{i}\n" for i in range(5))))
    assert len(log.fusions) == 3
    assert any(skip.what == "fusions" and "left out" in skip.reason for skip in log.skipped)


def test_line_longer_than_a_block_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parityscope.logs.lines.BLOCK", 64)
    monkeypatch.setattr("parityscope.logs.lines.LONGEST", 64)
    text = f"[V] ConvReluFusion: Fusing a with {'b' * 1000}\n[V] ConvReluFusion: Fusing c with d\n"
    log = read_log(written(tmp_path, text))
    assert log.lines == 2
    assert log.fusions[1].parts == ("c", "d")


# --- logs that TensorRT-RTX writes -----------------------------------------------------------------------------------

BUILD = """
import sys, tensorrt_rtx as trt
log = trt.Logger(trt.Logger.VERBOSE)
builder = trt.Builder(log)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
parser = trt.OnnxParser(network, log)
if not parser.parse_from_file(sys.argv[1]):
    sys.exit(3)
config = builder.create_builder_config()
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
sys.exit(builder.build_serialized_network(network, config) is None)
"""
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g ({kind}[2,3,8,8] b, {kind}[2,3,8,8] a) => ({kind}[2,4,8,8] y) <{kind}[4,3,3,3] W, {kind}[4] B> {{
  s = Sub(a, b)
  [conv] c = Conv<pads = [1,1,1,1]>(s, W, B)
  y = Relu(c)
}}"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The logs of two builds of one model, in FP32 and in FP16."""
    pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    folder = tmp_path_factory.mktemp("built")
    return {kind: build_log(folder, kind) for kind in ("float", "float16")}


def build_log(folder: Path, kind: str) -> Path:
    model = parser.parse_model(MODEL.format(kind=kind))
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    weights = {"W": np.full((4, 3, 3, 3), 0.1, dtype), "B": np.ones(4, dtype)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    for node, name in zip(model.graph.node, ("sub", "conv", "relu"), strict=True):
        node.name = name
    path = folder / f"{kind}.onnx"
    onnx.save(model, path)
    log = path.with_suffix(".log")
    with log.open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(path)], stdout=out, stderr=subprocess.STDOUT, check=False
        )
    assert done.returncode == 0, log.read_text(encoding="utf-8")[-2000:]
    return log


def test_real_build_is_read(built: dict[str, Path]) -> None:
    log = read_log(built["float"])
    assert [tensor.name for tensor in log.tensors if tensor.mode == "input"] == ["b", "a"]  # as declared in the file
    assert {"sub", "conv", "relu"} <= set(layer_of(log))  # every node of the graph is in a layer of the engine
    assert log.precision.split(", ")[0] == "Float"
    assert log.layer_counts[0][0] == "original"
    assert log.made["conv"] == "conv"
    assert not log.unexplained
    assert not log.skipped
    assert not [finding for finding in find_in_log(log) if finding.role == "cause"]


def test_real_build_whose_environment_forbids_tf32(built: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "off.log"
    code = BUILD.replace("config.profiling", "config.set_flag(trt.BuilderFlag.TF32); config.profiling")
    command = [sys.executable, "-c", code, str(built["float"].with_suffix(".onnx"))]
    with path.open("wb") as out:
        environment = {**os.environ, "NVIDIA_TF32_OVERRIDE": "0"}
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=True)
    log = read_log(path)
    assert log.tf32 == "off (NVIDIA_TF32_OVERRIDE=0)"
    assert [finding.code for finding in find_in_log(log)] == ["ACC205"]
    assert not log.unexplained


def test_real_builds_are_compared_node_by_node(built: dict[str, Path]) -> None:
    pair = compare_logs(read_log(built["float"]), read_log(built["float16"]))
    kinds = {node.node: (node.reference.types, node.candidate.types) for node in pair.nodes}
    assert set(kinds) == {"sub", "conv", "relu"}
    assert kinds["relu"] == (("Float",), ("Half",))
    (finding,) = [each for each in find_between(pair) if each.code == "CST205"]
    assert "relu (Float -> Half)" in finding.claim
    same = compare_logs(pair.reference, pair.reference)
    assert not same.differences
    assert not find_between(same)


def test_real_log_cut_anywhere_is_read_or_refused(built: dict[str, Path], tmp_path: Path) -> None:
    whole = built["float"].read_bytes()
    path = tmp_path / "cut.log"

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.integers(1, len(whole)), st.integers(0, 200))
    def cut(end: int, start: int) -> None:
        path.write_bytes(whole[start:end] or b"x")
        try:
            log = read_log(path)
        except ParityError as error:
            assert error.fix  # noqa: PT017 the property is about the error too
            return
        if b"Engine generation completed" not in whole[start:end]:
            assert log.skipped

    cut()


def test_real_log_of_polygraphy(built: dict[str, Path], tmp_path: Path) -> None:
    polygraphy = Path(sys.executable).with_name("polygraphy")
    if not polygraphy.exists():
        pytest.skip("Polygraphy is not installed")
    model = built["float"].with_suffix(".onnx")
    command = [sys.executable, str(polygraphy), "convert", str(model), "--verbose", "-o", str(tmp_path / "model.plan")]
    path = tmp_path / "polygraphy.log"
    with path.open("wb") as out:
        environment = {**os.environ, "POLYGRAPHY_USE_TENSORRT_RTX": "1"}
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=False)
    assert done.returncode == 0, path.read_text(encoding="utf-8")[-2000:]
    log = read_log(path)
    assert log.tool == "polygraphy"
    assert log.versions["TensorRT-RTX"] == importlib.metadata.version("tensorrt-rtx-cu13")
    assert log.facts["model"] == str(model)
    assert log.tf32 == ("on (builder flags)" if "TF32" in log.facts["builder flags"] else "off (builder flags)")
    assert log.builds == 1
    assert log_document(log, find_in_log(log))["verdict"] == "within"


def test_real_comparison_of_polygraphy_that_fails(built: dict[str, Path], tmp_path: Path) -> None:
    polygraphy = Path(sys.executable).with_name("polygraphy")
    if not polygraphy.exists():
        pytest.skip("Polygraphy is not installed")
    model, path = built["float"].with_suffix(".onnx"), tmp_path / "polygraphy.log"
    saved = str(tmp_path / "out.json")
    words = [sys.executable, str(polygraphy), "run", str(model), "--onnxrt"]
    subprocess.run([*words, "--save-outputs", saved], capture_output=True, check=True)
    other = [*words, "--seed", "3", "--load-outputs", saved]  # other inputs, so other outputs
    with path.open("wb") as out:
        assert subprocess.run(other, stdout=out, stderr=subprocess.STDOUT, check=False).returncode == 1
    log = read_log(path)
    found = find_in_log(log)
    assert [(finding.code, finding.role) for finding in found] == [("RUN203", "cause"), ("RUN202", "contributing")]
    assert found[0].details["names"] == ["y"]
    assert not [line for line in log.unexplained if line.severity == "E"]
    assert log_document(log, found)["verdict"] == "beyond"


def test_findings_of_two_logs_say_whose_they_are(tmp_path: Path) -> None:
    tf32 = "[I] TF32 is enabled by default. Add --noTF32 flag to further improve accuracy with some performance cost.\n"
    lost = (
        "[W] [TRT] - 1 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16.\n"
    )
    paths = [tmp_path / name for name in ("one.log", "two.log")]
    for path, text in zip(paths, (tf32, tf32 + lost), strict=True):
        path.write_text(text, encoding="utf-8")
    found = find_pair(compare_logs(*(read_log(path) for path in paths)))
    assert [(finding.code, finding.title) for finding in found] == [
        ("RNG201", "weights: overflow in FP16 (two.log)"),
        ("ACC201", "TF32 on by default (trtexec) (both logs)"),
    ]


def test_command_line_in_three_forms(built: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("log", str(built["float"]), str(built["float16"]))
    done = in_this_process(*words, "-o", str(page), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Float -> Half" in done.stdout
    held = json.loads(in_this_process(*words, "--format", "json", folder=tmp_path).stdout)
    assert held["kind"] == "log"
    assert held["comparison"]["retyped"] == 3
    assert page.read_text(encoding="utf-8").count("<html") == 1


def test_exit_code_and_escaping(tmp_path: Path) -> None:
    text = (
        "[W] [TRT] - 1 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 and "
        "converted them to the closest finite FP16 value.\n[V] [TRT]   List of affected weights: </script><b>\n"
    )
    path = written(tmp_path, text)
    done = in_this_process("log", str(path), "--format", "html", folder=tmp_path)
    assert done.returncode == 1
    assert "</script><b>" not in done.stdout
    assert done.stdout.count("</script>") == done.stdout.count("<script")
    log = read_log(path)
    assert FORMS.render(log_document(log, find_in_log(log)), "text", width=80)


def written(folder: Path, text: str) -> Path:
    path = folder / "build.log"
    path.write_text(text, encoding="utf-8")
    return path
