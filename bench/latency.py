"""Latency of models of one function side by side in ONNX Runtime, on a GPU or a CPU, and how far off each one is there.

    python bench/latency.py --make FOLDER               repaired.onnx, autocast.onnx and float16.onnx of an encoder of BERT-base's
                                                        size (`_rivals/large.py`); AutoCast needs bench/rivals.py --prepare
    python bench/latency.py FOLDER [--device cuda] [--rounds 200] [--batch 8] [--tokens 256]

Every *.onnx of FOLDER is measured; fp32.onnx is made there from its seed if it is missing, and inputs.npz is taken in the place
of the encoder's inputs if it is there. Measuring needs numpy, onnx and onnxruntime alone.

Inputs and outputs lie on the device (I/O binding), so that no copy is timed. After a warm-up the models run in turns, once
each a round, in an order drawn anew, so that clocks and neighbours disturb all alike. A time is one run up to its
synchronization. Shown are the median, the 10th and 90th percentile, and the ratio to fp32 as the median of each round's own
ratio with a 95 % bootstrap interval. On CUDA, FP32 is measured with TF32 (ONNX Runtime's default) and without.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _rivals.large import inputs, large_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SEED = 11
_LIMIT = 5e-3  # relative L2, the encoder's budget
_SEARCHED, _HELD_OUT, _TOKENS = 4, 22, 32  # samples of the search: single sequences
_WARM_UP = 20
_REDRAWN = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of models of one function side by side.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    asked = parser.parse_args()
    if asked.make:
        make(asked.folder)
        return
    write_fp32(asked.folder)
    arrays = fed(asked.folder, asked.batch, asked.tokens)
    runs = opened(asked.folder, asked.device, arrays)
    seconds = in_turns(runs, asked.rounds)
    print(f"{asked.device}, inputs {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")
    print(
        "| model | median ms | p10 to p90 | speedup over fp32 (95 % interval) | relative L2 error here |\n|---|---|---|---|---|"
    )
    for name, times in seconds.items():
        low, middle, high = (1e3 * np.quantile(times, share) for share in (0.1, 0.5, 0.9))
        print(
            f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} | {speedup(seconds['fp32'], times)} | "
            f"{error(runs['fp32'], runs[name]):.2g} |"
        )


def write_fp32(folder: Path) -> Path:
    """fp32.onnx, made from its seed if it is not there."""
    import onnx

    path = folder / "fp32.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(large_encoder(), path)
    return path


def fed(folder: Path, batch: int, tokens: int) -> dict[str, np.ndarray]:
    """inputs.npz of the folder, or the encoder's own inputs."""
    path = folder / "inputs.npz"
    if not path.exists():
        return inputs(np.random.default_rng(_SEED), batch, tokens)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def opened(folder: Path, device: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Each model with its inputs and outputs bound to the device: (run, outputs as arrays by name)."""
    found: dict[str, tuple[Path, dict[str, str]]] = {path.stem: (path, {}) for path in sorted(folder.glob("*.onnx"))}
    if device == "cuda":
        found["fp32 without TF32"] = (folder / "fp32.onnx", {"use_tf32": "0"})
    return {name: bound(path, device, options, arrays) for name, (path, options) in found.items()}


def bound(path: Path, device: str, options: dict[str, str], arrays: Mapping[str, np.ndarray]) -> Any:
    import onnxruntime as ort

    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    session = ort.InferenceSession(str(path), providers=[(provider, options)])
    if session.get_providers()[0] != provider:
        raise SystemExit(f"{path.name}: ONNX Runtime has no {provider} here")
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, device, 0))
    names = [value.name for value in session.get_outputs()]
    for name in names:
        binding.bind_output(name, device)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    def outputs() -> dict[str, np.ndarray]:
        run()
        return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))

    return run, outputs


def in_turns(runs: Mapping[str, Any], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of each round, by model."""
    draw = np.random.default_rng(_SEED)
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(min(_WARM_UP, rounds) + rounds):
        for place in draw.permutation(len(names)):
            started = time.perf_counter()
            runs[names[place]][0]()
            if number >= min(_WARM_UP, rounds):
                seconds[names[place]].append(time.perf_counter() - started)
    return {name: np.array(times) for name, times in seconds.items()}


def speedup(reference: np.ndarray, candidate: np.ndarray) -> str:
    """The median ratio of the rounds, with a percentile interval over rounds drawn with replacement."""
    ratios = reference / candidate
    draw = np.random.default_rng(_SEED)
    again = np.median(ratios[draw.integers(ratios.size, size=(_REDRAWN, ratios.size))], axis=1)
    low, high = np.quantile(again, (0.025, 0.975))
    return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def error(reference: Any, candidate: Any) -> float:
    """The worst relative L2 error over outputs, on this device."""
    expected, made = reference[1](), candidate[1]()
    return max(
        float(np.linalg.norm(made[name].astype(np.float64) - array) / np.linalg.norm(array.astype(np.float64)))
        for name, array in expected.items()
    )


def make(folder: Path) -> None:
    """The encoder repaired, and converted by AutoCast and by ONNX Runtime's float16, on the same samples."""
    from _rivals import environment

    from parityscope.case import load_inputs, load_model
    from parityscope.case.formats.npz import write_npz
    from parityscope.records import Budget, Policy
    from parityscope.repairs.search import RepairTask, search_repair
    from parityscope.repairs.search.splitting import split_samples

    path, draw = write_fp32(folder), np.random.default_rng(_SEED)
    with tempfile.TemporaryDirectory() as scratch:
        data, work = Path(scratch) / "data", Path(scratch) / "work"
        for number in range(_SEARCHED + _HELD_OUT):
            write_npz(data / f"{number:06d}.npz", inputs(draw, 1, _TOKENS))
        work.mkdir()
        model = load_model(path)
        budget = Budget(output="", metric="rel_l2", limit=_LIMIT, reason="bench")
        task = RepairTask(
            model=model,
            inputs=load_inputs(model, data, spool=Path(scratch) / "spool"),
            low="f16",
            policy=Policy(budgets=(budget,)),
            threads=1,
            search_samples=_SEARCHED,
        )
        for sample in split_samples(task)[0]:
            write_npz(Path(scratch) / "searched" / f"{sample.index:06d}.npz", sample.arrays)
        print(search_repair(task, work, folder / "repaired.onnx").statement)
        tools: dict[str, Callable[[Path], list[str]]] = {
            "autocast": lambda output: [str(path), str(Path(scratch) / "searched"), str(output), "fp16"],
            "ort_float16": lambda output: [str(path), str(output)],
        }
        for name, words in tools.items():
            output = folder / f"{name.removeprefix('ort_')}.onnx"
            here = Path(__file__).parent / "_rivals"
            reason = environment.missing()
            ran = None if reason else environment.python(here / f"{name}.py", words(output), limit_s=600)
            problem = reason or (ran.problem if ran else "")
            if not problem:
                merge(output)
            print(f"{name}: {problem or output}")


def merge(path: Path) -> None:
    """Gives equal weights one initializer again: AutoCast writes a copy for every node that reads them."""
    import onnx

    model = onnx.load(path)
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    names: dict[str, str] = {}
    kept = []
    for tensor in model.graph.initializer:
        content = onnx.numpy_helper.to_array(tensor).tobytes()
        names[tensor.name] = first.setdefault((tensor.data_type, tuple(tensor.dims), content), tensor.name)
        if names[tensor.name] == tensor.name:
            kept.append(tensor)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
