"""The facts of this machine -> text: what can run here and in what arithmetic, what is missing, what is known to be bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.report.forms import plain_forms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INDENT = 16


def _list_lines(found: Mapping[str, Any]) -> Iterator[str]:
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


FORMS = plain_forms("doctor", _list_lines)
