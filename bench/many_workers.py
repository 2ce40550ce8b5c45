"""Work shared by processes and by Ray clusters on this machine: speed, what a task costs beside its work, and killed workers.

    python bench/many_workers.py overhead    seconds a task that does nothing: 1 process, and 1 actor of a cluster
    python bench/many_workers.py scale       the same comparison by one node of one processor, and by two
    python bench/many_workers.py kills       workers killed at random in the middle of comparisons, until 50 were
    python bench/many_workers.py model       what the figures say of 1,000 nodes and 10^9 samples (`--task`, `--sample` in s)

Needs the extra `ray`. Says the load of the machine beside each figure.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.parser

from parityscope.case.formats.npz import write_npz
from parityscope.workers import Job, Shipped
from parityscope.workers.finishing import finish_tasks
from parityscope.workers.on_ray import run_on_ray
from parityscope.workers.packing import pack_record
from parityscope.workers.processes import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from parityscope.workers import Do

MARK = "PARITYSCOPE_BENCH_RUN"
TIMES = {"created", "command", "timings"}
ALONE = ["--reference", "ort?threads=1", "--candidate", "ort?threads=1&optimization=disabled"]


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """A cluster of nodes of one processor each; the environment leads to it."""
    import ray
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    os.environ[MARK] = uuid.uuid4().hex
    held = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(nodes - 1):
        held.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = held.address
    try:
        yield held.address
    finally:
        ray.shutdown()
        held.shutdown()
        del os.environ["RAY_ADDRESS"]


@contextlib.contextmanager
def nothing(_: Mapping[str, Path] | None = None) -> Iterator[Do]:
    yield lambda number, _: pack_record(number)


def measure_overhead(count: int) -> None:
    def read(number: int) -> Iterable[int]:
        return [number]

    job = Job(count=count, read=read, open=nothing, shipped=Shipped(files=(), open=nothing))

    def spend(run: Any) -> str:
        with tempfile.TemporaryDirectory() as folder:
            began, worked = None, 0.0
            for _ in finish_tasks(run, count, Path(folder) / "tasks", lambda _: None):
                if began is None:  # from the first answer on: starting is no cost of a task
                    began, worked = time.perf_counter(), time.process_time()
            wall, own = time.perf_counter() - (began or 0.0), time.process_time() - worked
            return f"{1e3 * wall / (count - 1):.2f} ms a task, {1e3 * own / (count - 1):.2f} ms of it the driver's processor"

    print(f"1 process: {spend(functools.partial(run_in_processes, job, workers=1))} ({load()})")
    with cluster(1) as address:
        print(f"1 Ray actor: {spend(functools.partial(run_on_ray, job, address))} ({load()})")


def make_case(folder: Path, samples: int, side: int, depth: int) -> None:
    """A chain of `depth` products that keeps a processor busy, and samples for it."""
    body = " ".join(f"p{n} = MatMul(h{n}, w) h{n + 1} = Relu(p{n})" for n in range(depth))
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[1,{side},{side}] x) => (float[1,8] y) '
        f"{{ h0 = Relu(x) {body} s = Slice(h{depth}, from, to, axes) y = ReduceMean<axes = [1], keepdims = 0>(s) }}"
    )
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(1)
    held = {
        "w": (generator.standard_normal((side, side)) * (2 / side) ** 0.5).astype(np.float32),
        "from": np.array([0]),
        "to": np.array([8]),
        "axes": np.array([2]),
    }
    for name, values in held.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "m.onnx")
    write_npz(folder / "x.npz", {"x": generator.standard_normal((samples, side, side)).astype(np.float32)})


def start_compare(folder: Path, study: str, *more: str) -> subprocess.Popen[bytes]:
    words = ["m.onnx", *ALONE, "--inputs", "x.npz", "--stacked", "--study", study, "--quiet", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "parityscope", "compare", *words], cwd=folder, stdout=subprocess.DEVNULL
    )


def read_study(folder: Path, study: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / study / "study.json").read_text("utf-8"))
    return found


def measure_scale(samples: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_case(
            folder, samples, 256, 192
        )  # a minute of work in 400 samples: starting a cluster's workers takes seconds
        print("| round | nodes | outputs, s | of it in runtimes, s | times as fast as one | machine |")
        print("| ---: | ---: | ---: | ---: | ---: | --- |")
        gained = []
        for turn in range(1, rounds + 1):
            seconds: dict[int, float] = {}
            for nodes in (1, 2):
                with cluster(nodes):
                    study = f"{nodes}-{turn}"
                    if start_compare(folder, study, "--workers", "auto").wait() not in {0, 1}:
                        raise SystemExit("the comparison failed")
                document = read_study(folder, study)
                seconds[nodes] = document["timings"]["outputs"]
                work = document["reference"]["seconds"] + document["candidate"]["seconds"]
                times = seconds[1] / seconds[nodes]
                print(f"| {turn} | {nodes} | {seconds[nodes]:.1f} | {work:.1f} | {times:.2f} | {load()} |", flush=True)
            gained.append(seconds[1] / seconds[2])
        print(
            f"\ntwo nodes, {samples} samples: {statistics.median(gained):.2f} times as fast at the median of {rounds}"
        )


def workers_of(driver: int, mark: str) -> list[int]:
    """The workers of a driver: its forked children, or the actors of the cluster that has this mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark:
                is_one = (path / "cmdline").read_bytes().startswith(b"ray::RayWorker") and (
                    f"{MARK}={mark}".encode() in (path / "environ").read_bytes()
                )
            else:
                # The command's own child does the work, and its children are the workers.
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                above = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
                is_one = above == driver
            if is_one:
                found.append(int(path.name))
    return found


def kill_workers(folder: Path, wanted: int, samples: int, workers: str, draw: random.Random) -> tuple[int, int]:
    """Compares again and again while workers are killed; gives how many were, and how often the document was another."""
    if start_compare(folder, f"whole-{workers}").wait() not in {0, 1}:
        raise SystemExit("the comparison failed")
    right, killed, wrong, turn = without_times(read_study(folder, f"whole-{workers}")), 0, 0, 0
    mark = os.environ[MARK] if workers == "auto" else ""
    while killed < wanted:
        turn += 1
        study = f"{workers}-{turn}"
        driver = start_compare(folder, study, "--workers", workers)
        tasks = folder / f".{study}.part" / "tensors"
        done = 0
        while driver.poll() is None:
            now = len(list(tasks.glob("tasks-*/*[0-9]")))
            if now > done and killed < wanted:  # somebody works: one of them ends, in the middle of whatever it does
                done = now + draw.randrange(8)
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(draw.choice(workers_of(driver.pid, mark)), signal.SIGKILL)
                    killed += 1
            time.sleep(0.02)
        if driver.returncode not in {0, 1}:
            raise SystemExit("a comparison did not end")
        found = without_times(read_study(folder, study))
        counted = found["outputs"][0]["samples"]
        wrong += found != right
        kind = "another" if found != right else "the same"
        print(f"  --workers {workers}: {killed} killed; {counted} of {samples} samples; {kind} document", flush=True)
    return killed, wrong


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    for side in ("reference", "candidate"):
        del document[side]["seconds"]
    return {key: held for key, held in document.items() if key not in TIMES}


def measure_kills(wanted: int, samples: int, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - of whom to kill
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_case(folder, samples, 128, 12)
        local = kill_workers(folder, wanted // 2, samples, "2", draw)
        with cluster(2):
            there = kill_workers(folder, wanted - wanted // 2, samples, "auto", draw)
    print(
        f"{local[0] + there[0]} workers killed; {local[1] + there[1]} documents with samples lost or counted twice ({load()})"
    )


def tell_model(task: float, sample: float, result: int, nbytes: int) -> None:
    """T = max(samples x sample / workers, tasks x task, samples x bytes / bandwidth), and what the driver holds."""
    samples, nodes, cores, size, wire = 10**9, 1000, 32, 256, 1.25e9
    tasks = samples / size
    rows = [
        ("work", samples * sample / (nodes * cores)),
        ("driver: handing out and merging", tasks * task),
        ("driver: sending samples", samples * nbytes / wire),
    ]
    for what, seconds in rows:
        print(f"{what}: {seconds / 3600:.1f} h")
    print(f"finished tasks on disk: {tasks / 1e6:.1f} million files, {tasks * result / 1e9:.0f} GB")
    print(f"errors of single samples, in memory: {samples * 120 / 1e9:.0f} GB an output")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "scale", "kills", "model"))
    parser.add_argument("--count", type=int, default=1000, help="tasks (overhead)")
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--killed", type=int, default=52)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", type=float, default=1e-3, help="seconds of the driver a task (model)")
    parser.add_argument("--sample", type=float, default=1e-2, help="seconds of a processor a sample (model)")
    parser.add_argument("--result", type=int, default=20_000, help="bytes of a finished task (model)")
    parser.add_argument("--nbytes", type=int, default=600_000, help="bytes of a sample (model)")
    told = parser.parse_args()
    if told.what == "overhead":
        measure_overhead(told.count)
    elif told.what == "scale":
        measure_scale(told.samples, told.rounds)
    elif told.what == "kills":
        measure_kills(told.killed, told.samples, told.seed)
    else:
        tell_model(told.task, told.sample, told.result, told.nbytes)


if __name__ == "__main__":
    main()
