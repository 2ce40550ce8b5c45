"""What the metric pass costs per pair of elements, against one read of both tensors.

    python bench/metric_pass.py [--elements N] [--repeat K]

Prints nanoseconds per pair (best of K) for the full pass (`measure_pair`) and the pass of the severed replay
(`measure_replay`, three tensors), on one thread and on two, and the limit beside them: a loop that only reads the same
bytes (numpy's exclusive-or over the words, in blocks of 256 KiB) on as many threads. Then the time a first call takes
in a fresh process, with an empty cache of compiled code and with a filled one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from parityscope.comparison import measure_pair, measure_replay

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BLOCK = 1 << 15  # 8-byte words
FIRST_CALL = """
import time; start = time.perf_counter()
import numpy as np
import parityscope.comparison as comparison
imported = time.perf_counter()
x = np.ones(8, np.{dtype})
comparison.measurements(comparison.measure_pair(x, x, channel_axis=0))
full = time.perf_counter()
comparison.measure_replay(x, x, x, channel_axis=0)
print(f"{{imported - start:.2f}} {{full - imported:.2f}} {{time.perf_counter() - full:.2f}}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=16_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'pass':<52} {'1 thread':>10} {'2 threads':>10}   ns per pair, best of {arguments.repeat}")
    for title, function in cases(arguments.elements):
        one, two = (best(function, threads, arguments.repeat) / arguments.elements * 1e9 for threads in (1, 2))
        print(f"{title:<52} {one:>10.2f} {two:>10.2f}")
    print()
    print("first call in a fresh process, seconds: import, first measure_pair, first measure_replay")
    for dtype in ("float32", "float64"):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                print(f"{dtype} {state}: {first_call(dtype, cache)}")


def cases(count: int) -> list[tuple[str, Callable[[int], object]]]:
    generator = np.random.default_rng(0)
    reference = generator.standard_normal(count, np.float32)
    reference[generator.random(count, np.float32) < 0.5] = 0  # as behind a ReLU
    noise = generator.standard_normal(count, np.float32)
    candidate = reference * (1 + np.float32(1e-3) * noise)
    replayed = reference * (1 + np.float32(1e-4) * noise)
    shape = (1, 64, count // 64 // 125, 125)
    r, c, f = (array[: count // 8000 * 8000].reshape(shape) for array in (reference, candidate, replayed))
    last = tuple(array.reshape(-1, 64) for array in (r, c, f))
    half, brain = c.astype(np.float16), c.astype(ml_dtypes.bfloat16)
    double = r.astype(np.float64), c.astype(np.float64)
    broken = c.copy()
    broken.reshape(-1)[:: 1 << 14] = np.nan
    return [
        ("read two float32 tensors (the limit)", lambda threads: read((r, c), threads)),
        ("measure_pair float32, no channels", lambda t: measure_pair(r, c, channel_axis=None, threads=t)),
        ("measure_pair float32, channels first", lambda t: measure_pair(r, c, channel_axis=1, threads=t)),
        ("measure_pair float32, 64 channels last", lambda t: measure_pair(*last[:2], channel_axis=1, threads=t)),
        ("measure_pair float32, a NaN every 16384", lambda t: measure_pair(r, broken, channel_axis=1, threads=t)),
        ("measure_pair float32, float16 candidate", lambda t: measure_pair(r, half, channel_axis=1, threads=t)),
        ("measure_pair float32, bfloat16 candidate", lambda t: measure_pair(r, brain, channel_axis=1, threads=t)),
        ("measure_pair float64", lambda t: measure_pair(*double, channel_axis=1, threads=t)),
        ("read three float32 tensors (the limit)", lambda threads: read((r, c, f), threads)),
        ("measure_replay float32, no channels", lambda t: measure_replay(r, c, f, channel_axis=None, threads=t)),
        ("measure_replay float32, channels first", lambda t: measure_replay(r, c, f, channel_axis=1, threads=t)),
        ("measure_replay float32, 64 channels last", lambda t: measure_replay(*last, channel_axis=1, threads=t)),
    ]


def read(tensors: tuple[np.ndarray, ...], threads: int) -> None:
    """Reads every byte once, all tensors side by side."""
    rows = [tensor.reshape(-1).view(np.uint64) for tensor in tensors]

    def part(start: int, stop: int) -> None:
        for at in range(start, stop, READ_BLOCK):
            for row in rows:
                np.bitwise_xor.reduce(row[at : min(stop, at + READ_BLOCK)])

    size = rows[0].size
    cuts = [size * cut // threads for cut in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, cuts[:-1], cuts[1:]))


def best(function: Callable[[int], object], threads: int, repeat: int) -> float:
    function(threads)  # compiles, and touches the memory
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        function(threads)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def first_call(dtype: str, cache: str) -> str:
    code = FIRST_CALL.format(dtype=dtype)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
