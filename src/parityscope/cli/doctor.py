"""`parityscope doctor`: what can run here and in what arithmetic, what is known to be bad, what is missing and how to get it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parityscope.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.cli.shell.answering import Answer

__all__ = ["NAME", "command", "examine_machine"]

NAME = "doctor"

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
_INDENT = 16


def command(
    *,
    told: Answer,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Compile what is compiled once, so that no other command waits for it.")
    ] = False,
) -> int:
    """Lists what can run here and in what arithmetic, what is missing, and the facts about this machine that change results."""
    from parityscope.report.forms import plain_forms

    forms = plain_forms("doctor", _lines_of)
    told.claim(forms)
    if prepare:
        from parityscope.cli._preparing import prepare_machine

        for line in prepare_machine():
            print(line, flush=True)
        return Exit.WITHIN
    told.hand_over(forms, examine_machine())
    return Exit.WITHIN


def examine_machine() -> dict[str, Any]:
    """The facts as plain data."""
    from parityscope.backends import arithmetic_of, known_backends, probe_backend
    from parityscope.backends.gpu import find_driver
    from parityscope.backends.machine import cpu_facts, machine_facts
    from parityscope.environment import list_conflicts
    from parityscope.installed import Machine, known_problems
    from parityscope.version import __version__

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
    driver = find_driver()
    # After the probes: what they loaded is loaded by now.
    facts = machine_facts()
    if driver.gpus:
        capabilities = (".".join(map(str, gpu.capability)) for gpu in driver.gpus)
        facts = {**facts, "driver cuda": driver.cuda, "compute capability": ", ".join(capabilities)}
        facts.setdefault("gpu", ", ".join(gpu.name for gpu in driver.gpus))
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


def _lines_of(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"parityscope {found['parityscope']}, Python {found['python']}, {found['os']}"
    yield f"CPU: {found['cpu']['name']} ({', '.join(found['cpu']['features']) or 'no features known'})"
    gpus = [f"{one['name']}, capability {'.'.join(map(str, one['capability']))}" for one in found["gpu"]["gpus"]]
    cuda = f", driver for CUDA {found['gpu']['cuda']}" if found["gpu"]["cuda"] else ""
    yield f"GPU: {'; '.join(gpus) or found['gpu']['problem']}{cuda}"
    for name, state in found["backends"].items():
        yield ""
        yield f"{name:{_INDENT}} {state['title']}: {state['problem'] or 'ready, ' + state['version']}"
        if state["fix"]:
            yield f"{'':{_INDENT}} fix: {state['fix']}"
        for key, value in state["facts"].items():
            yield f"{'':{_INDENT}} {key}: {value}"
    for name, value in found["variables"].items():
        yield f"{name} is set: {value!r}"
    yield ""
    yield "what each really computes in:" + ("" if found["arithmetic"] else " nothing that runs a model is installed")
    for one in found["arithmetic"]:
        tf32 = "" if one["tf32"] == "none" else f", TF32 {one['tf32']}"
        yield f"{one['target']:{_INDENT}} {one['computes']}{tf32}: {one['because']}"
    yield ""
    yield "facts that change results:"
    for key, value in {**found["packages"], **found["facts"]}.items():
        yield f"{'':{_INDENT}} {key}: {value}"
    for one in found["known"]:
        yield f"known to be bad: {one['problem']} ({one['source']}); fix: {one['fix']}"
    for conflict in found["conflicts"]:
        yield f"conflict: {conflict}"
