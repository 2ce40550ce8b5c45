"""`parityscope log` on engines' layers (`trtexec --exportLayerInfo`) and their times (`--exportProfile`), of both layouts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from command_line import exit_status
from parityscope.backends.tensorrt.engine_log import log_of_layer_info, with_profile
from parityscope.errors import ParityError
from parityscope.logs import compare_logs, node_times, read_log
from parityscope.repairs.search.costs import read_profile

if TYPE_CHECKING:
    from pathlib import Path

# NVIDIA's separator of parts, which its writer leaves as it is inside of a JSON string.
SEPARATOR = "\x1e"


def layer(name: str, kind: str, written: str, *nodes: str) -> dict[str, Any]:
    output = {"Name": f"{name}.out", "Dimensions": [1, 4], "Datatype": written, "Format": "Row major linear"}
    metadata = SEPARATOR.join(f"[ONNX Layer: {node}]" for node in nodes)
    return {"Name": name, "LayerType": kind, "Inputs": [], "Outputs": [output], "TacticName": "k", "Metadata": metadata}


def write(folder: Path, name: str, layers: list[Any], times: dict[str, float]) -> tuple[Path, Path]:
    held = {
        "Layers": layers,
        "I/O Tensors": [{"Name": "x", "IOMode": "Input", "DataType": "Float", "Dimensions": [1, 4]}],
    }
    info, profile = folder / f"{name}.json", folder / f"{name}-times.json"
    text = json.dumps(held).replace("\\u001e", SEPARATOR)
    info.write_text(text, encoding="utf-8-sig")
    # As trtexec's sampleReporting.cpp writes it: the number of runs, then the layers.
    rows = [{"name": one, "timeMs": time * 10, "averageMs": time, "percentage": 1.0} for one, time in times.items()]
    profile.write_text(json.dumps([{"count": 10}, *rows]), encoding="utf-8")
    return info, profile


@pytest.fixture
def builds(tmp_path: Path) -> list[tuple[Path, Path]]:
    full = [layer("conv + relu", "CaskConvolution", "Float", "conv", "relu"), layer("fc", "gemm", "Float", "fc")]
    low = [
        layer("Reformatting CopyNode for Input Tensor 0 to conv", "Reformat", "Half"),
        layer("conv_relu_fc_myl0_1", "kgen", "Half", "conv", "relu", "fc"),
        layer("fc_myl0_2", "gemm", "Half", "fc"),
    ]
    return [
        write(tmp_path, "full", full, {"conv + relu": 0.4, "fc": 0.1}),
        write(tmp_path, "low", low, {low[0]["Name"]: 0.02, "conv_relu_fc_myl0_1": 0.09, "fc_myl0_2": 0.05}),
    ]


def test_two_engines_are_compared_node_by_node(
    builds: list[tuple[Path, Path]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("log", str(builds[0][0]), str(builds[1][0]), "--format", "json") == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["comparison"]["nodes"], found["comparison"]["retyped"]) == (3, 3)
    assert [finding["code"] for finding in found["findings"]] == ["CST205"]
    assert found["candidate"]["reformats"] == 1
    assert exit_status("log", str(builds[0][0])) == 0
    printed = capfd.readouterr().out
    assert ", an engine's layers\n" in printed
    assert "lines of" not in printed


def test_times_of_layers_become_times_of_nodes(builds: list[tuple[Path, Path]], tmp_path: Path) -> None:
    times = tmp_path / "times.json"
    words = ["--profile", str(builds[0][1]), "--profile", str(builds[1][1]), "--node-times", str(times)]
    assert exit_status("log", str(builds[0][0]), str(builds[1][0]), *words) == 0
    measured = read_profile(times, "f16")  # as `repair --profile` reads it
    # conv and relu share 0.4 ms; of the one kernel of 0.09 ms all three nodes have a third, fc has 0.05 ms more.
    found: dict[str, Any] = {name: (one.full, one.low) for name, one in measured.items()}
    assert found == {
        "conv": (pytest.approx(2e-4), pytest.approx(3e-5)),
        "relu": (pytest.approx(2e-4), pytest.approx(3e-5)),
        "fc": (pytest.approx(1e-4), pytest.approx(8e-5)),
    }
    held = json.loads(times.read_text(encoding="utf-8"))
    assert held["seconds of layers of no node"] == {"f32": 0.0, "f16": pytest.approx(2e-5)}


def test_what_no_times_can_be_made_of(builds: list[tuple[Path, Path]], capfd: pytest.CaptureFixture[str]) -> None:
    (full, full_times), (low, low_times) = builds
    one, other = with_profile(log_of_layer_info(full), full_times), log_of_layer_info(low)
    with pytest.raises(ParityError, match=r"low\.json has no times of layers") as caught:
        node_times(compare_logs(one, other))
    assert "--exportProfile" in caught.value.fix
    with pytest.raises(ParityError, match=r"full\.json has no layer in FP16, BF16 or FP8"):
        node_times(compare_logs(with_profile(other, low_times), one))
    swapped = with_profile(log_of_layer_info(full), low_times)
    assert "3 of 3 layers" in swapped.skipped[-1].what
    assert exit_status("log", str(full), "--profile", str(low_times)) == 3  # no time is of this engine
    assert exit_status("log", str(full), str(low), "--profile", str(full_times)) == 2
    assert "there are 2 builds and 1 of --profile" in capfd.readouterr().err
    assert exit_status("log", str(full), "--node-times", "t.json") == 2
    assert exit_status("log", str(full_times)) == 2
    assert "--exportLayerInfo" in capfd.readouterr().err


def test_layers_that_are_names_alone_are_told(tmp_path: Path) -> None:
    info, _ = write(tmp_path, "names", ["conv + relu", "fc"], {})
    log = log_of_layer_info(info)
    assert [layer.nodes for layer in log.layers] == [("conv", "relu"), ("fc",)]
    (told,) = [skip for skip in log.skipped if skip.fix]
    assert told.what == "types and kernels of 2 layers"
    assert "profilingVerbosity=detailed" in told.fix


def test_a_verbose_log_has_times_of_its_own(tmp_path: Path) -> None:
    fc = "Name: {name}, LayerType: gemm, Inputs: [], Outputs: [ {{ Name: y, Dimensions: [1], Datatype: {dtype} }}], "
    lines = [
        fc + "TacticName: t, Metadata: [ONNX Layer: fc]",
        "[I] === Profile (10 iterations ) ===",
        "[I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
        "[I]       1.00       {time}       0.1000     100.0   {name}",
        "[I]       1.00       {time}       0.1000     100.0   Total",
    ]
    logs = []
    for name, dtype, time in (("a", "Float", "0.2000"), ("b", "Half", "0.0500")):
        path = tmp_path / f"{name}.log"
        path.write_text("\n".join(lines).format(name=name, dtype=dtype, time=time) + "\n", encoding="utf-8")
        logs.append(read_log(path))
    found: Any = node_times(compare_logs(*logs)).nodes["fc"]
    assert found == (pytest.approx(2e-4), pytest.approx(5e-5))
