"""`parityscope doctor`: what can run here, what is missing and how to get it."""

from __future__ import annotations

import json
import platform
from typing import Annotated, Any

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "doctor"


def command(*, format_name: Annotated[str, typer.Option("--format", help="text or json.")] = "text") -> int:
    """Lists every backend with what is missing, and the facts about this machine that change results."""
    if format_name not in {"text", "json"}:
        raise ParityError(f"doctor has no format {format_name!r}", fix="use --format text|json")
    found = examine_machine()
    if format_name == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
        return Exit.WITHIN
    print(f"parityscope {found['parityscope']}, Python {found['python']}, {found['os']}")
    print(f"CPU: {found['cpu']['name']} ({', '.join(found['cpu']['features']) or 'no features known'})")
    for name, state in found["backends"].items():
        print(f"\n{name:10} {state['title']}: {state['problem'] or 'ready, ' + state['version']}")
        if state["fix"]:
            print(f"{'':10} fix: {state['fix']}")
        for key, value in state["facts"].items():
            print(f"{'':10} {key}: {value}")
    print("\nfacts that change results:")
    for key, value in found["facts"].items():
        print(f"{'':10} {key}: {value}")
    for conflict in found["conflicts"]:
        print(f"conflict: {conflict}")
    return Exit.WITHIN


def examine_machine() -> dict[str, Any]:
    """The facts as plain data."""
    import parityscope
    from parityscope.backends import backends
    from parityscope.backends._environment import cpu_facts, machine_facts
    from parityscope.environment import conflicts

    states = {}
    for name, found in backends().items():
        probe = found.probe()
        states[name] = {
            "title": found.title,
            "version": probe.version,
            "problem": probe.problem,
            "fix": probe.fix,
            "facts": dict(probe.facts),
        }
    return {
        "parityscope": parityscope.__version__,
        "python": platform.python_version(),
        "os": platform.platform(),
        "cpu": cpu_facts(),
        "backends": states,
        "facts": (facts := machine_facts()),
        "conflicts": list(conflicts(facts)),
    }
