"""`parityscope doctor`: what can run here, what is missing and how to get it."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from parityscope.errors import Exit, ParityError

__all__ = ["NAME", "command"]

NAME = "doctor"

# CPU features that decide in which precision a CPU runtime really computes.
_FEATURES = ("avx2", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_tile")


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
    return Exit.WITHIN


def examine_machine() -> dict[str, Any]:
    """The facts as plain data."""
    import parityscope
    from parityscope.backends import backends

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
        "cpu": _cpu(),
        "backends": states,
    }


def _cpu() -> dict[str, Any]:
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    trimmed = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(trimmed.get("flags", "").split())
    return {
        "name": trimmed.get("model name", platform.processor() or platform.machine()),
        "features": [feature for feature in _FEATURES if feature in flags],
    }
