"""`parityscope mcp` with the SDK's own client, over stdin and stdout of a real process; and what a call may not name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parityscope.cli.shell.tools import CallBounds, known_tools, schema_of_tool, words_of_call
from parityscope.errors import ParityError
from parityscope.testing.networks import write_network

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[1,16] x) => (float[1,16] y) { t = Tanh(x) y = Mul(t, t) }'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "samples").mkdir(parents=True)
    write_network(root / "m.onnx", TEXT, {})
    np.savez(root / "samples" / "0.npz", x=np.linspace(-1, 1, 16, dtype=np.float32)[None])
    write_network(tmp_path / "secret.onnx", TEXT, {})
    (root / "link.onnx").symlink_to(tmp_path / "secret.onnx")
    (root / "circle").symlink_to("circle")
    (root / "code").symlink_to("load.py:samples")
    return root


@pytest.fixture
def bounds(root: Path, monkeypatch: pytest.MonkeyPatch) -> CallBounds:
    monkeypatch.chdir(root)
    return CallBounds(root=root.resolve())


@pytest.mark.story
def test_an_assistant_calls_the_verbs(root: Path) -> None:
    mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["-m", "parityscope", "mcp", "--root", str(root)]
    server = mcp.StdioServerParameters(command=sys.executable, args=words, env=environment)
    told: list[tuple[float, str]] = []
    (root / "onnx.py").write_text("raise SystemExit(7)", "utf-8")  # what lies in the root takes no module's place

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    async def talk() -> tuple[Any, ...]:
        async with mcp.Client(server) as client:
            listed = await client.list_tools()
            given = {"model": "m.onnx", "candidate": "sim:bf16", "declared": "f16", "inputs": "samples"}
            compared = await client.call_tool("compare", given, progress_callback=note)
            outside = await client.call_tool("lint", {"model": "../secret.onnx"})
            broken = await client.call_tool("lint", {"model": "samples/0.npz"})
            return listed, compared, outside, broken

    listed, compared, outside, broken = asyncio.run(talk())
    assert {one.name for one in listed.tools} == set(known_tools())
    text = compared.content[0].text
    assert not compared.is_error, text
    assert "✕ m wholly in FP16" in text
    assert "Exit code 1: beyond" in text
    (report,) = [line.removeprefix("Report: ") for line in text.splitlines() if line.startswith("Report: ")]
    assert Path(report).is_file()
    assert Path(report).is_relative_to(root.resolve())
    # Steps of the work were told while it went on, and what is told grows.
    assert [one for one, _ in told] == sorted(one for one, _ in told)
    assert any("/" in message for _, message in told)
    for failed, words_told in ((outside, "lies outside of"), (broken, "parityscope: ")):
        assert failed.is_error
        assert words_told in failed.content[0].text
        assert "fix:" in failed.content[0].text
        assert "Traceback" not in failed.content[0].text


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("lint", {"model": "/etc/passwd"}),
        ("lint", {"model": "samples/../../secret.onnx"}),
        ("lint", {"model": "link.onnx"}),
        ("compare", {"model": "m.onnx", "candidate": "ort?model=../secret.onnx"}),
        ("compare", {"model": "m.onnx", "candidate": "saved?path=%2Fetc"}),
        ("compare", {"model": "m.onnx", "candidate": "command?run=touch+x"}),
        ("compare", {"model": "m.onnx", "candidate": "python?call=deploy.py:infer"}),
        ("compare", {"model": "m.onnx", "candidate": "sim:f16", "inputs": "load.py:samples"}),
        ("compare", {"model": "m.onnx", "candidate": "sim:f16", "preprocess": "load.py:prepare"}),
        ("compare", {"model": "m.onnx", "candidate": "sim:f16", "inputs": "load.py:samples/"}),
        ("compare", {"model": "m.onnx", "candidate": "sim:f16", "preprocess": "load.py:prepare/."}),
        ("compare", {"model": "m.onnx", "candidate": "sim:f16", "inputs": "code"}),
        ("compare", {"model": "m.onnx", "candidate": "saved?path=a\0b"}),
        ("repair", {"model": "m.onnx", "output": "../fixed.onnx"}),
        ("diff", {"before": "..", "after": "."}),
        ("lint", {"model": "m.onnx", "network": "trt"}),
        ("lint", {"model": 3}),
        ("lint", {"model": ["m.onnx"]}),
        ("lint", {"model": "a\0b"}),
        ("lint", {"model": "circle"}),
        ("lint", {}),
        ("run", {}),
    ],
)
def test_what_a_call_may_not_name_is_one_error_with_a_fix(bounds: CallBounds, tool: str, given: dict[str, Any]) -> None:
    with pytest.raises(ParityError) as refused:
        words_of_call(tool, given, bounds)
    assert refused.value.fix


def test_a_policy_file_opens_no_other_way(bounds: CallBounds, root: Path) -> None:
    text = '[[check]]\nmodel = "m.onnx"\ninputs = "samples"\ncandidate = "{0}"\n'
    (root / "parityscope.toml").write_text(text.format("sim:f16"), "utf-8")
    words, study = words_of_call("check", {}, bounds)
    assert words == ["check", f"--study={study}", "--", "parityscope.toml"]
    for target in ("command?run=touch x", "ort?model=../secret.onnx"):
        (root / "parityscope.toml").write_text(text.format(target), "utf-8")
        with pytest.raises(ParityError):
            words_of_call("check", {}, bounds)


def test_code_is_allowed_where_somebody_says_so(root: Path, bounds: CallBounds) -> None:
    given = {"model": "m.onnx", "candidate": "command?run=./infer.sh"}
    assert (
        "--candidate=command?run=./infer.sh"
        in words_of_call("compare", given, CallBounds(root=bounds.root, allow_code=True))[0]
    )


def test_a_server_whose_assistant_has_gone_ends_without_an_error(root: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    words = [sys.executable, "-m", "parityscope", "mcp", "--root", str(root)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_no_value_is_taken_for_an_option(bounds: CallBounds) -> None:
    assert words_of_call("explain", {"code": "--help"}, bounds)[0] == ["explain", "--", "--help"]
    given = {"model": "m.onnx", "candidate": "sim:f16", "declared": "--policy=x"}
    assert "--declared=--policy=x" in words_of_call("compare", given, bounds)[0]


def test_every_tool_is_a_command_with_the_options_that_it_names() -> None:
    from parityscope.cli.shell.app import command

    known: Any = command().commands  # type: ignore[attr-defined]
    for name, tool in known_tools().items():
        told = {one.name: one for one in tool.parameters}
        helped = {word.lstrip("-").replace("-", "_"): one.help for one in known[name].params for word in one.opts}
        assert {one: helped[one] for one in told} == {one: told[one].told for one in told}, name
        assert schema_of_tool(tool)["additionalProperties"] is False
    assert [one for one, tool in known_tools().items() if tool.study] == [
        "diagnose",
        "compare",
        "localize",
        "predict",
        "lint",
        "log",
        "repair",
        "verify",
        "diff",
        "check",
    ]
    schema = schema_of_tool(known_tools()["verify"])
    assert schema["required"] == ["model", "before", "after"]
    assert {name: schema["properties"][name]["type"] for name in ("samples", "budget", "no_timing", "inputs")} == {
        "samples": "integer",
        "budget": "array",
        "no_timing": "boolean",
        "inputs": "string",
    }
    assert schema_of_tool(known_tools()["repair"])["required"] == ["model", "output"]
