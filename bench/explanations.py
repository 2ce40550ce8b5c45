"""How often the explanation of a layer is right: planted arithmetics and faults, and clean layers that must not be blamed.

    python bench/explanations.py [--planted N] [--clean N] [--seed S]

N planted layers of every kind and N clean ones in all (FP32 in another order, TF32, FP16, BF16). A planted layer is
computed apart from what is tested: its numbers are rounded by ml_dtypes' casts and integer masks, its products are summed
in another order (the contracted axis is permuted), and another function is another ONNX model run by ONNX Runtime. Faults
are planted on top of FP32, TF32, FP16 or BF16. A plant whose effect is below twenty times FP32's rounding of the result is
drawn again: nothing could find it. Prints the confusion matrix, the share named rightly (a set that holds the truth counts) and
how many clean layers were called a bug.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from _planted.arithmetics import CLEAN
from _planted.layer import region
from _planted.linear_layers import LINEAR
from _planted.other_layers import POINTWISE
from _planted.plant import honest
from _planted.plants import PLANTS, SAID, planted

from parityscope.evaluation.sessions import Sessions
from parityscope.explanation import Explanation, explain_region
from parityscope.explanation.records import ExplanationOptions

if TYPE_CHECKING:
    from _planted.plant import Plant

_DECLARED = {"f32_reordered": "f32", "tf32_nearest": "tf32", "f16_inputs_output": "f16", "bf16_inputs_output": "bf16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", type=int, default=20)
    parser.add_argument("--clean", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    right, table = score(arguments.planted, arguments.seed)
    total = sum(table.values())
    print(
        f"planted layers: {right} of {total} named rightly ({right / total:.4f}), {time.perf_counter() - started:.0f} s"
    )
    _show(table)
    started = time.perf_counter()
    blamed = clean_layers(arguments.clean, arguments.seed)
    print(
        f"clean layers: {sum(blamed.values())} of {arguments.clean} called a bug, {time.perf_counter() - started:.0f} s"
    )
    for (truth, named), count in blamed.items():
        print(f"  {truth}: {named} x{count}")


def score(count: int, seed: int, kinds: tuple[str, ...] = ()) -> tuple[int, Counter[tuple[str, str]]]:
    """How many plants were named rightly, and the confusion matrix (truth, named)."""
    right = 0
    table: Counter[tuple[str, str]] = Counter()
    sessions = Sessions(threads=1)
    for truth in kinds or tuple(PLANTS):
        generator = np.random.default_rng([seed, *truth.encode()])
        for _ in range(count):
            plant = planted(truth, generator)
            found = _examined(plant, sessions)
            good = _is_named(found, truth)
            right += good
            table[truth, _named(found) + ("+" if good and _named(found) != truth else "")] += 1
    return right, table


def _is_named(found: Explanation, truth: str) -> bool:
    """Whether what is accepted holds the truth: a hypothesis of that name, or a generated one in words that say it."""
    if truth in SAID:
        return any(each.family == "semantic" and re.search(SAID[truth], each.words) for each in found.by)
    return truth in {each.hypothesis for each in found.by}


def clean_layers(count: int, seed: int) -> Counter[tuple[str, str]]:
    """Honest layers that were called a bug: (arithmetic, what they were called)."""
    blamed: Counter[tuple[str, str]] = Counter()
    generator = np.random.default_rng(seed)
    sessions = Sessions(threads=1)
    makers = [*LINEAR, *POINTWISE]
    for number in range(count):
        truth = CLEAN[number % len(CLEAN)]
        layer = makers[int(generator.integers(len(makers)))](generator)
        found = _examined(honest(layer, truth, generator), sessions)
        if found.is_bug:
            blamed[truth, f"{_named(found)}: {layer.text.splitlines()[1].strip()}"] += 1
    return blamed


def _examined(plant: Plant, sessions: Sessions) -> Explanation:
    options = ExplanationOptions(declared=_DECLARED.get(plant.base, ""))
    return explain_region(region(plant.layer), plant.feeds, plant.candidate, options, sessions)


def _named(found: Explanation) -> str:
    return found.by[0].hypothesis if found.by else found.status


def _show(table: Counter[tuple[str, str]]) -> None:
    truths = list(dict.fromkeys(truth for truth, _ in table))
    for truth in truths:
        row = {name: count for (each, name), count in table.items() if each == truth}
        print(
            f"  {truth:<24} " + ", ".join(f"{name} {count}" for name, count in sorted(row.items(), key=lambda x: -x[1]))
        )


if __name__ == "__main__":
    main()
