"""This machine -> facts: which backends can run here and in what arithmetic, and what is known to be bad of what is installed."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import distributions
from typing import Any

from parityscope.backends import arithmetic_of, gpu, known_backends, probe_backend
from parityscope.backends.machine import cpu_facts, machine_facts
from parityscope.environment import list_conflicts
from parityscope.installed import Machine, known_problems
from parityscope.version import __version__

# Packages beside the runtimes whose version changes results, by the beginning of their name.
_PACKAGES = (
    "onnx",
    "polygraphy",
    "numpy",
    "nvidia-cublas",
    "nvidia-cuda-runtime",
    "nvidia-cudnn",
)
# Variables that decide which GPU and which libraries are found. They are no facts to compare: paths differ between machines.
_PLACES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)


def examine_machine() -> dict[str, Any]:
    """The facts as plain data."""
    states: dict[str, dict[str, Any]] = {}
    linked: dict[str, int] = {}
    every = known_backends()
    for name, found in every.items():
        probe = probe_backend(found)
        linked.update(found.linked(probe))
        states[name] = {
            "title": found.title,
            "version": probe.version,
            "problem": probe.problem,
            "fix": probe.fix,
            "facts": dict(probe.facts),
        }
    driver = gpu.find_driver()
    # After the probes: what they loaded is loaded by now.
    facts = machine_facts()
    if driver.gpus:
        capabilities = (".".join(map(str, one.capability)) for one in driver.gpus)
        facts = {**facts, "driver cuda": driver.cuda, "compute capability": ", ".join(capabilities)}
        facts.setdefault("gpu", ", ".join(one.name for one in driver.gpus))
    packages = _tell_packages(tuple(one.package or one.name for one in every.values() if one.reads_model))
    machine = Machine(
        versions=packages,
        features=frozenset(cpu_facts()["features"]),
        capability=driver.gpus[0].capability if driver.gpus else None,
        driver_cuda=driver.cuda,
        backends=frozenset(name for name, state in states.items() if not state["problem"]),
        variables=facts,
        told={name: state["facts"] for name, state in states.items()},
        linked=linked,
    )
    return {
        "parityscope": __version__,
        "python": platform.python_version(),
        "os": platform.platform(),
        "variables": {name: os.environ[name] for name in _PLACES if name in os.environ},
        "cpu": cpu_facts(),
        "gpu": asdict(driver),
        "packages": packages,
        "backends": states,
        "arithmetic": [asdict(one) for one in arithmetic_of(machine)],
        "known": [asdict(one) for one in known_problems(machine)],
        "facts": facts,
        "conflicts": list(list_conflicts(facts)),
    }


def _tell_packages(runtimes: tuple[str, ...]) -> dict[str, str]:
    """The installed packages that change results, those of the runtimes and others, with their versions."""
    found = {}
    for one in distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith((*_PACKAGES, *runtimes)):
            found[name] = one.version
    return dict(sorted(found.items()))
