"""Work shared on a real Ray cluster of several nodes: a node is killed in the middle, the driver connects as a client."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser
import pytest

import parityscope
from command_line import exit_status, read_study
from parityscope.backends.shared_targets import files_of_targets, locate_target, needs_gpu
from parityscope.backends.targets import parse_target
from parityscope.case.formats.npz import write_npz
from parityscope.errors import ParityError
from parityscope.workers import Job, Shipped, on_ray
from parityscope.workers.finishing import finish_tasks
from parityscope.workers.on_ray import run_on_ray
from parityscope.workers.packing import pack_record, unpack_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from parityscope.workers import Do

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="pip install 'parityscope[ray]'")
pytestmark = [
    pytest.mark.cluster,
    # Ray leaves sockets and processes to be collected.
    pytest.mark.filterwarnings("ignore"),
]
COUNT = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and two nodes, one processor each; Ray's client server listens on the head."""
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
    with pytest.MonkeyPatch.context() as patch:
        # The head forks a server for each client: gRPC's own handlers of forks close files that the child needs, now and then.
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        held = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    held.client_address = f"ray://127.0.0.1:{port}"
    for _ in range(2):
        held.add_node(num_cpus=1, wait=False)
    held.wait_for_nodes()
    yield held
    ray.shutdown()
    held.shutdown()


@pytest.fixture
def auto(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a Ray job finds in its environment."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return "auto"


@contextlib.contextmanager
def squares(factor: int, meeting: str, places: Mapping[str, Path]) -> Iterator[Do]:
    """Squares what is read for a task, with what a shipped file holds; no task ends before two workers have met."""
    (place,) = places.values()
    import ray

    added = int((place / "inside" / "number.txt").read_text("utf-8"))

    def square(number: int, given: Iterable[int]) -> bytes:
        if number == 7 and factor < 0:
            os._exit(3)
        if meeting:
            # All in the name: a file that is there may still be empty.
            (Path(meeting) / f"{ray.get_runtime_context().get_node_id()}.{os.getpid()}").touch()
            while len(list(Path(meeting).iterdir())) < 2:
                time.sleep(0.05)
        return pack_record((number, factor * sum(given) + added, os.getpid()))

    yield square


def job(folder: Path, factor: int = 3, *, gpus: int = 0, meeting: str = "") -> Job:
    (folder / "shipped" / "inside").mkdir(parents=True, exist_ok=True)
    (folder / "shipped" / "inside" / "number.txt").write_text("5", encoding="utf-8")
    files = files_of_targets([parse_target(f"saved?path={folder / 'shipped'}")])
    shipped = Shipped(files=files, open=functools.partial(squares, factor, meeting), gpus=gpus)
    return Job(count=COUNT, read=lambda number: [number, number], open=lambda: squares(factor, "", {}), shipped=shipped)


def test_a_node_that_is_killed_in_the_middle_loses_no_task_and_none_counts_twice(
    cluster: Any, auto: str, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    work = job(tmp_path, meeting=str(meeting))
    # Closed also where something fails: Ray ends the process where a second driver meets what is left of a first one.
    with contextlib.closing(
        finish_tasks(functools.partial(run_on_ray, work, auto), COUNT, None, lambda _: None)
    ) as answers:
        found = [unpack_record(next(answers), ())]
        at_work = {file.stem for file in meeting.iterdir()}
        assert len(at_work) > 1
        cluster.remove_node(
            next(node for node in cluster.worker_nodes if node.node_id in at_work), allow_graceful=False
        )
        found += [unpack_record(content, ()) for content in answers]
    assert [one[:2] for one in found] == [(number, 6 * number + 5) for number in range(COUNT)]


def test_a_task_that_ends_every_actor_is_given_up(auto: str, tmp_path: Path) -> None:
    work = job(tmp_path, -1)
    with contextlib.closing(
        finish_tasks(functools.partial(run_on_ray, work, auto), COUNT, None, lambda _: None)
    ) as answers:
        assert [unpack_record(next(answers), ())[0] for _ in range(7)] == list(range(7))
        with pytest.raises(ParityError, match="workers in a row ended"):
            next(answers)


def test_what_the_cluster_lacks_is_said_at_once(auto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParityError, match="no GPU for a worker") as caught:
        list(run_on_ray(job(tmp_path, gpus=1), auto, [0]))
    assert "--num-gpus=1" in caught.value.fix
    monkeypatch.setattr(on_ray, "__version__", "9.9.9")
    with pytest.raises(ParityError, match=f"has Parityscope {parityscope.__version__}, and here is 9.9.9") as caught:
        list(run_on_ray(job(tmp_path), auto, [0]))
    assert "parityscope==9.9.9" in caught.value.fix


def test_a_full_object_store_is_said_with_the_fix(auto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray import exceptions

    def put(_: object) -> None:
        raise exceptions.ObjectStoreFullError("no room")

    work = job(tmp_path)
    monkeypatch.setattr(ray, "put", put)
    with pytest.raises(ParityError, match="object store is full") as caught:
        list(run_on_ray(work, auto, [0]))
    assert "--object-store-memory" in caught.value.fix


def test_another_version_of_ray_is_said_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def init(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0 Python: 3.9.1")

    ray.shutdown()
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ParityError, match=r"another version: .*Ray: 2\.9\.0") as caught:
        list(run_on_ray(job(tmp_path), "ray://host:10001", [0]))
    assert "ray[client]" in caught.value.fix


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A folder with m.onnx and x.npz, 30 samples."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,16] x) => (float[1,8] y) { h = MatMul(x, w) y = Relu(h) }'
    )
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(3)
    weights = generator.standard_normal((16, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    write_npz(tmp_path / "x.npz", {"x": generator.standard_normal((30, 16)).astype(np.float32)})
    return tmp_path


@pytest.mark.parametrize("verb", ["compare", "verify"])
def test_a_client_of_the_cluster_comes_to_the_document_of_one_process(cluster: Any, case: Path, verb: str) -> None:
    other = f"ort?optimization=disabled&model={case / 'm.onnx'}"
    sides = ["--candidate", other] if verb == "compare" else ["--before", other, "--after", "ort", "--no-timing"]

    def document(study: str, *more: str) -> dict[str, Any]:
        words = [verb, str(case / "m.onnx"), *sides, "--inputs", str(case / "x.npz"), "--stacked", "--quiet"]
        assert exit_status(*words, "--study", str(case / study), *more) in {0, 3}
        found = read_study(case / study)
        for side in {"reference", "candidate", "before", "after"} & found.keys():
            del found[side]["seconds"]
        return {key: held for key, held in found.items() if key not in {"created", "command", "timings", "seconds"}}

    assert document("shared", "--workers", cluster.client_address) == document("alone")


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed: nothing is missing")
def test_nodes_without_the_runtime_give_the_error_of_one_machine(
    cluster: Any, case: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", str(case / "m.onnx"), "--candidate", "torch", "--inputs", str(case / "x.npz"), "--stacked"]
    told = []
    for more in ((), ("--workers", cluster.client_address)):
        assert exit_status(*words, "--quiet", "--study", str(case / "none"), *more) == 2
        told.append(capfd.readouterr().err)
    assert "torch cannot be imported" in told[0]
    assert told[0].splitlines()[0] in told[1]


def test_what_a_target_needs_elsewhere(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"")
    target = parse_target(f"ort?device=cuda:1&custom_ops={library}&threads=2")
    assert needs_gpu(target)
    assert not needs_gpu(parse_target("openvino:f16"))
    (shipped,) = files_of_targets([target, target])
    assert shipped.files == (library,)
    moved = locate_target(target, {str(library): tmp_path / "there" / "lib.so"})
    assert moved.option("custom_ops") == str(tmp_path / "there" / "lib.so")
    assert moved.option("threads") == "2"
