"""The command lines that a report gives for trtexec and Polygraphy: right for the finding, the version and the real tool."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parityscope.report.nvidia import deploys_with_tensorrt, view_nvidia_commands
from proving.tensorrt_replay.trtexec import refusals


def document(code: str, *, declared: str = "f16", backend: str = "trt", **more: Any) -> dict[str, Any]:
    site = {"node": "norm/Pow", "tensor": "norm/Pow_output", "op_type": "Pow", "index": 3, "scope": ""}
    return {
        "model": {"path": "/models/my model.onnx", "outputs": [{"name": "logits"}]},
        "question": {"asked": {"inputs": "samples"}},
        "candidate": {"backend": backend, "declared": declared, "environment": {}},
        "policy": {"declared": declared},
        "findings": [
            {"code": "DAT003", "role": "information", "repairs": []},
            {"code": code, "role": "cause", "site": site, "repairs": [], "details": {}, **more},
        ],
    }


KEPT = {"repair": "keep_in_fp32", "trial": None}
FOLDED = {"repair": "fold_batch_normalization", "trial": {"verdict": "within"}}
EVERY = [
    document("RNG001", repairs=[FOLDED, KEPT]),
    document("RNG002", declared="bf16", repairs=[KEPT]),
    document("ACC001", declared="tf32", details={"change": "tf32_off"}, repairs=[{"repair": "runtime_settings"}]),
    document("FUS002", declared="f32"),
    document("BND001", declared="f32", site=None),
    document("PRE001", site=None),
]


def lines(found: list[dict[str, str]], tool: str, versions: str = "") -> list[str]:
    return [row["line"] for row in found if row["tool"] == tool and versions in row["versions"]]


@pytest.mark.parametrize("asked", EVERY, ids=lambda one: one["findings"][1]["code"])
def test_options_are_those_of_the_tool_and_its_version(asked: dict[str, Any]) -> None:
    rows = view_nvidia_commands(asked)
    assert rows
    for row in rows:
        for version in re.findall(r"[\d.]+", row["versions"]) if row["tool"] == "trtexec" else ():
            first = {"8.6": "8.6.1", "9": "9.1.0", "10": "10.0.1", "11": "11.0"}.get(version, version)
            assert not refusals(row["line"], first), row
    assert {row["does"] for row in rows} <= {"prepares", "confirms", "applies"}
    assert {row["code"] for row in rows} == {"", asked["findings"][1]["code"]}  # nothing for mere information


def test_polygraphy_takes_every_option_that_is_named() -> None:
    tool = str(Path(sys.executable).with_name("polygraphy"))
    known: dict[str, set[str]] = {}
    for asked in EVERY:
        for line in lines(view_nvidia_commands(asked), "polygraphy"):
            words = shlex.split(line, comments=True)
            verb = words[1]
            if verb == "inspect":
                continue
            if verb not in known:
                done = subprocess.run([tool, verb, "--help"], capture_output=True, text=True, check=True)
                known[verb] = set(re.findall(r"--[a-z0-9-]+", done.stdout))
            assert {word for word in words if word.startswith("--")} <= known[verb], line
    assert set(known) == {"run", "convert"}


def test_an_overflow_is_looked_at_kept_and_written_typed() -> None:
    found = view_nvidia_commands(EVERY[0])
    assert (
        found[0]["line"] == "parityscope run '/models/my model.onnx' --inputs samples --format trtexec -o for-trtexec"
    )
    confirm, kept = lines(found, "trtexec", "8.6 to 10")
    assert confirm.endswith("--fp16 --verbose > build.log; parityscope log build.log")
    assert "--layerPrecisions=norm/Pow:fp32 --layerOutputTypes=norm/Pow:fp32" in kept
    assert any("--markDebug=norm/Pow_output" in line for line in lines(found, "trtexec", "11"))
    assert "trtexec --onnx='my model.fixed.onnx' --stronglyTyped --saveEngine=fixed.plan" in lines(
        found, "trtexec", "10"
    )


def test_what_lies_outside_of_the_network_is_asked_by_name() -> None:
    found = view_nvidia_commands(EVERY[4])
    assert "polygraphy inspect model '/models/my model.onnx'" in lines(found, "polygraphy")[0]
    given = "trtexec --onnx='/models/my model.onnx' --exportOutput=exported.json $(cat for-trtexec/0000000000.args)"
    assert [row["versions"] for row in found if row["line"] == given] == [
        "8.6 to 11"
    ]  # one line, as FP32 needs no option
    assert "saved?path=exported.json" in found[-1]["line"]


def test_tf32_is_turned_off_by_its_own_switch() -> None:
    found = view_nvidia_commands(EVERY[2])
    assert all("--noTF32" in line for line in lines(found, "trtexec") if "--saveEngine" in line)
    assert any("--tf32" in line for line in lines(found, "polygraphy"))


@pytest.mark.parametrize("backend", ["ort", "openvino", "torch"])
def test_other_runtimes_get_no_such_commands(backend: str) -> None:
    assert view_nvidia_commands(document("RNG001", backend=backend)) == []
    assert not deploys_with_tensorrt(document("RNG001", backend=backend))


def test_a_terminal_shows_them_where_tensorrt_is_deployed() -> None:
    assert deploys_with_tensorrt(document("RNG001"))
    recorded = document("RNG001", backend="saved")
    assert not deploys_with_tensorrt(recorded)
    recorded["candidate"]["environment"] = {
        "recording": "trtexec --exportOutput (text of 6 significant digits), f.json"
    }
    assert deploys_with_tensorrt(recorded)


@pytest.mark.parametrize(
    ("told", "absent", "present"),
    [
        ("tensorrt 8.6.1.6", {"10", "11", "10 and 11"}, {"8.6 to 10"}),
        ("tensorrt 10.16.1.11", {"11"}, {"10", "8.6 to 10", "10 and 11"}),
        ("11.4.0.106", {"10", "8.6 to 10"}, {"11", "10 and 11"}),
        ("tensorrt_rtx 1.7.1.116", set(), {"10", "11"}),
        ("", set(), {"10", "11"}),
    ],
)
def test_lines_are_those_of_the_version_that_is_there(told: str, absent: set[str], present: set[str]) -> None:
    asked = document("RNG001", repairs=[FOLDED, KEPT])
    asked["candidate"]["environment"] = {"tensorrt": told}
    versions = {row["versions"] for row in view_nvidia_commands(asked)}
    assert not versions & absent
    assert versions >= present
