"""The adapter over the stand-in, for each family of versions: what it makes of what TensorRT has and says.

Nothing of TensorRT is executed here, so nothing here shows that an engine runs: what is shown is that every path of ours is
taken, with the members that the version has and no others, and that each failure ends in one error with its fix.
"""

from __future__ import annotations

import _ctypes
import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import parser

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.backends.tensorrt import logger
from parityscope.backends.tensorrt.memory import Device
from parityscope.case import Model, Sample, load_model
from parityscope.errors import ParityError
from proving.tensorrt_replay.facts import FACTS, has, numbers, said
from proving.tensorrt_replay.host import Polygraphy
from proving.tensorrt_replay.module import open_replay
from proving.tensorrt_replay.scenes import Region, make_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from parityscope.backends import Session

    Opener = Callable[..., contextlib.AbstractContextManager[Session]]

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
  <float[4,4] W = {1,2,3,4,0.1,1,0,0,0,0,1,0,0,0,0,1}> {
  [product] a = MatMul(x, W) [cut] b = Relu(a) [soft] c = Softmax(b) [last] y = Exp(c) }"""
COUNTED = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, int64[1] n) => (float[2,4] y, int64[1] m) {
  [wide] w = Cast<to = 1>(n) [scaled] y = Mul(x, w) [next] m = Add(n, n) }"""
FUSED = (Region(nodes=("product", "cut"), type="HALF", kind="gemm"), Region(nodes=("soft", "last"), type="HALF"))
X = np.random.default_rng(3).normal(size=(2, 4)).astype(np.float32)
# Versions that whole paths are taken in: the oldest, those around what changed, the newest.
FAMILIES = ("8.6.1.6", "10.0.1.6", "10.11.0.33", "10.13.0.35", "10.16.1.11", "11.4.0.106", "rtx")
RELEASES = (*(tag[1:] for tag in FACTS["releases"]["tags"]), "11.4.0.106", "rtx")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    onnx.save(parser.parse_model(TEXT), tmp_path / "model.onnx")
    return load_model(tmp_path / "model.onnx")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """Opens a target of `trt` with a scene in the place of TensorRT."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(logger, "LOGGERS", {})
    monkeypatch.setattr("parityscope.backends.trt.gpu_problem", lambda _package: "")

    @contextlib.contextmanager
    def device() -> Iterator[Device]:
        yield Device(Polygraphy, Polygraphy.Stream())

    monkeypatch.setattr("parityscope.backends.tensorrt.running.opened_device", device)

    @contextlib.contextmanager
    def opening(
        model: Model, version: str, target: str, tensors: tuple[str, ...] = (), **facts: Any
    ) -> Iterator[Session]:
        product, number = product_of(version)
        scene = make_scene(
            tmp_path / f"scene-{version}",
            facts.pop("scene_of", model).path,
            number,
            facts.pop("regions", FUSED),
            product=product,
            **facts,
        )
        trt = open_replay(str(scene))
        monkeypatch.setitem(sys.modules, trt.__name__, trt)
        both = f"{target}{'&' if '?' in target else '?'}isolate=off&product={product}"
        shapes = ({value.name: (2, 4) if value.name == "x" else (1,) for value in model.inputs},)
        with open_target(model, parse_target(both), Capture(tensors=tensors, shapes=shapes)) as session:
            yield session

    return opening


def sample(**arrays: np.ndarray) -> Sample:
    return Sample(index=0, name="first", arrays=arrays)


def plain(target: str = "trt", version: str = "10.13.0.35") -> str:
    """The target with the FP16 flag where the version has it, and else as the file is typed."""
    return f"{target}:f16" if has("BuilderFlag.FP16", *reversed(product_of(version))) else target


def product_of(version: str) -> tuple[str, str]:
    """The product, and its number."""
    return ("rtx", FACTS["releases"]["rtx"]) if version == "rtx" else ("tensorrt", version)


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_builds_runs_and_shows(version: str, model: Model, opened: Opener) -> None:
    with opened(model, version, plain(version=version), ("b", "a")) as session:
        found = session.run(sample(x=X))
        graph, missing = session.executed, {skip.what for skip in session.absent}
    if version != "rtx" and numbers(version) < (10, 12):
        assert session.disturbs == ("outputs marked" if numbers(version) < (10,) else "debug tensors marked")
    else:
        assert session.disturbs == "unfused tensors shown"
    by_name = "unfused" not in session.disturbs
    assert sorted(found) == (["a", "b", "y"] if by_name else ["b", "y"])
    assert missing == (set() if by_name else {"tensor a"})
    whole = np.maximum(X @ weight_of(model), 0)
    assert np.abs(found["b"].astype(np.float32) - whole).max() <= 2e-3 * np.abs(whole).max()
    assert graph is not None
    first = graph.layers[0]
    assert (first.nodes, first.stored) == (("product",) if by_name else ("product", "cut"), "f16")


def test_a_release_has_the_members_that_the_facts_give_it(model: Model, tmp_path: Path) -> None:
    for version in RELEASES:
        product, number = product_of(version)
        trt = open_replay(str(make_scene(tmp_path / version, model.path, number, FUSED, product=product)))
        for member in FACTS["members"]:
            owner, _, name = member.partition(".")
            if owner in {"ILayer", "ITensor", "ParserError", "IBuilderConfig", "IExecutionContext"}:
                continue  # their instances have it
            held = getattr(trt, owner, None)
            found = held is not None and (not name or hasattr(held, name))
            assert found == has(member, number, product), (version, member)


def test_engines_for_other_gpus_of_the_same_kind_begin_with_10_9(model: Model, opened: Opener) -> None:
    for version in RELEASES:
        target = f"{plain(version=version)}?hardware=same_cc"
        if version != "rtx" and numbers(version) >= (10, 9):
            with opened(model, version, target) as session:
                assert session.run(sample(x=X))["y"].shape == (2, 4)
            continue
        with pytest.raises(ParityError) as caught, opened(model, version, target):
            pass
        assert caught.value.fix in {"use ampere_plus", "name the GPUs instead: capability=8.9,12.0"}


def test_libraries_that_kernels_come_from_are_few_from_11_on(model: Model, opened: Opener) -> None:
    with opened(model, "11.1", "trt?tactics=-JIT_CONVOLUTIONS") as session:
        assert session.run(sample(x=X))["y"].shape == (2, 4)
    with (
        pytest.raises(ParityError, match="no tactic source CUDNN") as caught,
        opened(model, "11.1", "trt?tactics=-CUDNN"),
    ):
        pass
    assert caught.value.fix == "use some of EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS"


def test_a_gpu_by_its_number_is_the_only_one_that_is_seen(
    model: Model, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with opened(model, "10.13.0.35", "trt?device=1"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"


def test_each_fact_has_its_source() -> None:
    held = [FACTS["releases"], {"source": FACTS["members_source"]}, *FACTS["behaviour"]]
    for words in FACTS["words"].values():
        held += words if isinstance(words, list) else [words]
    assert len(held) > 25
    for one in held:
        assert re.match(r"https://|made: |the docstring of ", one["source"]), one


def test_the_real_binding_of_rtx_agrees() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="no wheel of TensorRT-RTX for this machine")
    for member in FACTS["members"]:
        owner, _, name = member.partition(".")
        if hasattr(trt, owner) and owner not in {"ILayer", "IBuilderConfig", "Runtime", "ParserError"}:
            assert (not name or hasattr(getattr(trt, owner), name)) == has(member, FACTS["releases"]["rtx"], "rtx"), (
                member
            )


@pytest.mark.parametrize("version", FAMILIES)
def test_what_the_builder_refuses_to_show_is_left_out(version: str, model: Model, opened: Opener) -> None:
    target = f"{plain(version=version)}?observe=all"
    with opened(model, version, target, ("a", "b", "c"), refused_marks=["b"]) as session:
        assert sorted(session.run(sample(x=X))) == ["a", "c", "y"]
        assert [skip.reason for skip in session.absent] == ["TensorRT's builder refuses an engine that shows it"]


@pytest.mark.parametrize("version", FAMILIES)
def test_a_fused_region_is_looked_into_by_name(version: str, model: Model, opened: Opener) -> None:
    """What a localization asks of the leading suspect's region, of every backend."""
    with opened(model, version, f"{plain(version=version)}?observe=all", ("a", "b")) as session:
        assert sorted(session.run(sample(x=X))) == ["a", "b", "y"]


def test_a_parser_may_take_another_name(model: Model, opened: Opener) -> None:
    with opened(model, "10.0.1.6", "trt:f16", ("b",), renamed={"b": "b"}) as session:
        assert sorted(session.run(sample(x=X))) == ["b", "y"]


@pytest.mark.parametrize("version", FAMILIES)
def test_obeyed_precisions_change_the_engine(version: str, model: Model, opened: Opener) -> None:
    """Weak typing with and without constraints where the version has it, strong typing where it has that."""
    honest, found = onnx.load(model.path), {}
    product, number = product_of(version)
    targets = {"coarse": "trt:f16", "fine": "trt:f16?layers=*:f32"} if has("BuilderFlag.FP16", number, product) else {}
    if has("NetworkDefinitionCreationFlag.STRONGLY_TYPED", number, product):
        targets["strong"] = "trt"
    for name, target in targets.items():
        with opened(model, version, target, honest=honest) as session:
            found[name] = session.run(sample(x=X))["y"].tolist()
    plain = np.exp(np.exp(hidden := np.maximum(X @ weight_of(model), 0)) / np.exp(hidden).sum(-1, keepdims=True))
    for name, values in found.items():
        assert bool(np.abs(values - plain).max() < 1e-6) == (name != "coarse"), name


def weight_of(model: Model) -> np.ndarray:
    return onnx.numpy_helper.to_array(onnx.load(model.path).graph.initializer[0])


@pytest.mark.parametrize("version", ["8.6.1.6", "10.13.0.35"])
def test_int64_is_int32_before_10(version: str, tmp_path: Path, opened: Opener) -> None:
    onnx.save(parser.parse_model(COUNTED), tmp_path / "counted.onnx")
    counted = load_model(tmp_path / "counted.onnx")
    with opened(counted, version, "trt", regions=(), int64_weights=True) as session:
        found = session.run(sample(x=X, n=np.array([3])))
    assert found["m"].dtype == np.int64
    assert (found["m"].tolist(), found["y"].tolist()) == ([6], (X * 3).tolist())


@pytest.mark.parametrize("version", FAMILIES)
def test_the_profile_that_covers_a_sample(version: str, model: Model, opened: Opener) -> None:
    profiles = [{"x": [[1, 4]] * 3}, {"x": [[2, 4], [3, 4], [3, 4]]}]
    with opened(model, version, plain(version=version), profiles=profiles) as session:
        for rows in (1, 2, 3):
            assert session.run(sample(x=np.ones((rows, 4), np.float32)))["y"].shape == (rows, 4)
        with pytest.raises(ParityError, match="profile covers"):
            session.run(sample(x=np.ones((5, 4), np.float32)))


@pytest.mark.parametrize("version", FAMILIES)
def test_an_output_whose_shape_the_run_decides(version: str, model: Model, opened: Opener) -> None:
    with opened(model, version, plain(version=version), decided_by_values=["y"]) as session:
        assert session.run(sample(x=X))["y"].shape == (2, 4)


def test_an_output_that_nobody_writes_is_an_error(model: Model, opened: Opener) -> None:
    with (
        opened(model, "10.13.0.35", "trt:f16", unwritten=["y"]) as session,
        pytest.raises(ParityError, match="wrote nothing into output 'y'") as caught,
    ):
        session.run(sample(x=X))
    assert caught.value.fix


@pytest.mark.parametrize("version", [version for version in FAMILIES if version != "rtx"])
def test_a_timing_cache_is_read_and_written(version: str, model: Model, opened: Opener, tmp_path: Path) -> None:
    path = tmp_path / "times.cache"
    target = f"{plain(version=version)}?timing_cache={path}&cache=off"
    for _ in range(2):
        with opened(model, version, target):
            assert path.read_bytes() == b"timings:measured"
    path.write_bytes(b"something else that is long enough")
    with pytest.raises(ParityError, match="no timing cache"), opened(model, version, target):
        pass
    assert path.read_bytes().startswith(b"something")


@pytest.mark.parametrize("version", [version for version in FAMILIES if version != "rtx"])
def test_a_version_compatible_engine_is_made_and_read(version: str, model: Model, opened: Opener) -> None:
    with opened(model, version, f"{plain(version=version)}?version_compatible=on") as session:
        assert session.run(sample(x=X))["y"].shape == (2, 4)


# The option -> what the builder was told then, and which versions have it.
BOXED: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "workspace=1GiB": ({"pools": {"WORKSPACE": 1 << 30}}, lambda _version: True),
    "level=2": ({"level": 2}, lambda _version: True),
    "tactics=-CUDNN,%2BCUBLAS": (
        {"sources": ["CUBLAS", "CUBLAS_LT", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]},
        lambda version: version != "rtx" and not version.startswith("11"),
    ),
    "dla=0": ({"dla": 0, "fallback": True}, lambda version: version != "rtx"),
    "dla=1&fallback=off": ({"dla": 1, "fallback": False}, lambda version: version != "rtx"),
    "hardware=ampere_plus": ({"hardware": "AMPERE_PLUS"}, lambda version: version != "rtx"),
    "build_route=-conv_use_long_w=off": ({"route": "-conv_use_long_w=off"}, lambda version: version.startswith("11")),
}


@pytest.mark.parametrize("version", FAMILIES)
def test_each_option_of_the_builder_is_met_or_refused(
    version: str, model: Model, opened: Opener, tmp_path: Path
) -> None:
    routes = {"tuner_options": [{"option": "-conv_use_long_w", "allowed_values": "[on|off]"}]}
    for option, (told, has_it) in BOXED.items():
        target = f"{plain(version=version)}?{option}"
        if not has_it(version):
            with pytest.raises(ParityError) as caught, opened(model, version, target, build_routes=routes):
                pass
            assert caught.value.fix
            continue
        with opened(model, version, target, build_routes=routes):
            newest = max((tmp_path / "cache").rglob("*.plan"), key=lambda path: path.stat().st_mtime_ns)
        facts = json.loads(newest.read_bytes()[28:])  # the stand-in's engine: a header, and what its builder was told
        found = {**facts["told"], "fallback": "GPU_FALLBACK" in facts["flags"]}
        assert found == {**found, **told}, option


def test_engines_between_versions(model: Model, opened: Opener, tmp_path: Path) -> None:
    for version, target in (("8.6.1.6", "trt:f16"), ("10.0.1.6", "trt:f16?version_compatible=on")):
        with opened(model, version, target):
            pass
    plans = sorted((tmp_path / "cache").rglob("*.plan"), key=lambda path: path.read_bytes()[24])
    old, compatible = (f"trt?engine={path}" for path in plans)
    with pytest.raises(ParityError, match="another version") as caught, opened(model, "10.13.0.35", old):
        pass
    assert "version_compatible=on" in caught.value.fix
    with pytest.raises(ParityError, match="carries a runtime"), opened(model, "10.13.0.35", compatible):
        pass
    with opened(model, "10.13.0.35", f"{compatible}&version_compatible=on") as session:
        assert session.run(sample(x=X))["y"].shape == (2, 4)


def test_an_engine_with_the_weights_of_another_file(model: Model, opened: Opener, tmp_path: Path) -> None:
    """The engine of an older checkpoint: its own outputs, and with the model's weights in its kernels, the model's."""
    trained = onnx.load(model.path)
    trained.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) / 2, "W"))
    onnx.save(trained, tmp_path / "trained.onnx")
    newer = load_model(tmp_path / "trained.onnx")
    hidden = np.exp(np.maximum(X / 2, 0))
    right = np.exp(hidden / hidden.sum(-1, keepdims=True))
    for version in ("10.0.1.6", "10.13.0.35", "11.4.0.106", "rtx"):
        with opened(model, version, "trt?refit=on"):
            plan = max((tmp_path / "cache").rglob("*.plan"), key=lambda path: path.stat().st_mtime_ns)
        found = {}
        for refit in ("off", "on"):
            with opened(newer, version, f"trt?engine={plan}&refit={refit}", scene_of=model) as session:
                found[refit] = float(np.abs(session.run(sample(x=X))["y"] - right).max())
        assert found["on"] < 1e-2 < found["off"], version


@pytest.mark.parametrize(
    ("version", "built", "facts", "says"),
    [
        ("8.6.1.6", "&refit=on", {}, "does not refit from an ONNX file"),
        ("10.13.0.35", "", {}, "its weights are fixed"),
        ("10.13.0.35", "&refit=on", {"faults": {"refit": True}}, "TensorRT does not say why"),
        ("10.13.0.35", "&refit=on", {"renamed weights": True}, "needs weights that renamed.onnx does not have: W"),
    ],
)
def test_an_engine_that_cannot_be_refitted(
    version: str, built: str, facts: dict[str, Any], says: str, model: Model, opened: Opener, tmp_path: Path
) -> None:
    with opened(model, version, f"trt?level=3{built}"):
        (plan,) = (tmp_path / "cache").rglob("*.plan")
    given = model
    if facts.pop("renamed weights", False):
        onnx.save(parser.parse_model(TEXT.replace(" W", " V").replace("W)", "V)")), tmp_path / "renamed.onnx")
        given = load_model(tmp_path / "renamed.onnx")
    with (
        pytest.raises(ParityError, match=says) as caught,
        opened(given, version, f"trt?engine={plan}&refit=on", scene_of=model, **facts),
    ):
        pass
    assert caught.value.fix


def test_standard_plug_ins_are_registered_first(model: Model, opened: Opener) -> None:
    with opened(model, "8.6.1.6", "trt:f16", needs_plugins=["InstanceNormalization_TRT"]) as session:
        assert session.run(sample(x=X))["y"].shape == (2, 4)


def test_a_library_brings_its_plug_in(model: Model, opened: Opener, tmp_path: Path) -> None:
    library = tmp_path / "libown.so"
    library.write_bytes(Path(_ctypes.__file__).read_bytes())  # any library that loads
    facts = {"needs_plugins": ["Own_TRT"], "libraries": {"libown.so": ["Own_TRT"]}}
    for version in FAMILIES:
        with opened(model, version, f"{plain(version=version)}?plugins={library}", **facts) as session:
            assert session.run(sample(x=X))["y"].shape == (2, 4)


NODE = {"reason": "Assertion failed: no such mode", "node": 1, "name": "cut", "operator": "Relu"}


@pytest.mark.parametrize("version", FAMILIES)
@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"faults": {"parse": NODE}}, r"refused the model: cut \(Relu\): Assertion failed"),
        ({"faults": {"build": "soft"}}, "Could not find any implementation for node soft"),
        ({"faults": {"context": True}}, "no memory for the engine"),
        ({"faults": {"execute": True}}, "failed while running sample first: the GPU has not enough memory"),
        ({"needs_plugins": ["Own_TRT"]}, "a plug-in is not loaded.*Own_TRT"),
        ({"faults": {"build": "soft", "words": {"build": "out_of_memory"}}}, "the GPU has not enough memory for it"),
        ({"faults": {"build": "soft", "words": {"build": "no_fp8"}}}, "this GPU has no FP8"),
        ({"faults": {"build": "soft", "words": {"build": "type_not_allowed"}}}, "the file asks for fp16"),
        (
            {"faults": {"deserialize": 1, "words": {"deserialize": "another_gpu"}}},
            r"capability 8\.6, this one has 8\.9",
        ),
        ({"faults": {"parse": {**NODE, "reason": "Unsupported ONNX data type: UINT8 (2)"}}}, "does not have a type"),
        ({"formats": {"x": "CHW4"}}, "only C order"),
    ],
)
def test_the_failure_of_each_step_is_one_error(
    version: str, facts: Mapping[str, Any], says: str, model: Model, opened: Opener
) -> None:
    with pytest.raises(ParityError) as caught, opened(model, version, plain(version=version), **facts) as session:
        session.run(sample(x=X))
    assert re.search(says, f"{caught.value.problem} {caught.value.where}")
    assert caught.value.fix


@pytest.mark.parametrize("version", ["11.4.0.106", "rtx"])
def test_what_a_version_lacks_is_refused_with_what_to_do(version: str, model: Model, opened: Opener) -> None:
    with pytest.raises(ParityError) as caught, opened(model, version, "trt:f16"):
        pass
    assert "model=" in caught.value.fix or "repair" in caught.value.fix


@pytest.mark.parametrize("version", ["8.6.1.6", "10.16.1.11"])
def test_eight_bits_without_scales_are_refused(version: str, model: Model, opened: Opener) -> None:
    with pytest.raises(ParityError, match="needs scales") as caught, opened(model, version, "trt:int8"):
        pass
    assert "quantize the model first" in caught.value.fix


def test_words_of_the_versions_are_known_to_the_reader() -> None:
    from parityscope.backends.tensorrt.loading import reason_of

    for key in ("library_version", "host_code", "no_plugin"):
        for version in FAMILIES:
            words = said(key, version, ours=version, name="Own_TRT") if version != "rtx" else None
            if words:
                assert all(reason_of([words[1]])), (key, version, words)


def test_the_inspectors_words_are_no_strict_json(model: Model, tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", model.path, "10.13.0.35", FUSED)
    trt = open_replay(str(scene))
    from proving.tensorrt_replay.inspecting import inspected

    facts = {"debug": [], "outputs": [], "unfused": False, "detailed": True}
    text = inspected(trt.scene, facts)
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert len(json.loads(text, strict=False)["Layers"]) == 2
    names = json.loads(inspected(trt.scene, {**facts, "detailed": False}))["Layers"]
    assert names[0] == "product + cut"
