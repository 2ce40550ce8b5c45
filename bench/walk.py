"""Which module calls which while a request is answered, and what is called from below: `python bench/walk.py WORD...`.

Runs `parityscope WORD...` in this process with a hook on every call, and holds each call between two modules of the package
against the layers of pyproject.toml. A call upwards is a function that was handed down (a bench that a check asks, what a world
does to a step, a renderer), since no import points up; each is printed with how often it was made, and so is each pair of modules
that call each other. Slow: for small networks."""

from __future__ import annotations

import sys
import threading
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

HERE = Path(__file__).resolve().parents[1]
PACKAGE = str(HERE / "src" / "parityscope")


def read_layers() -> dict[str, int]:
    """The package's parts by their height; what stands in no layer is not held."""
    contract = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    return {
        part.strip().removeprefix("parityscope."): -place
        for place, layer in enumerate(contract["layers"])
        for part in layer.split("|")
    }


def main() -> None:
    """Runs the command and prints its calls between modules."""
    from parityscope.cli import run_command

    calls: Counter[tuple[str, str]] = Counter()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_back is None:
            return
        callee, caller = frame.f_code.co_filename, frame.f_back.f_code.co_filename
        if callee != caller and callee.startswith(PACKAGE) and caller.startswith(PACKAGE):
            calls[caller, callee] += 1

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    status = run_command(sys.argv[1:])
    sys.setprofile(None)
    layers = read_layers()
    parts = {path: Path(path).relative_to(PACKAGE).with_suffix("").parts[0] for pair in calls for path in pair}
    modules = {path for pair in calls for path in pair}
    upwards = {
        pair: count
        for pair, count in calls.items()
        if layers.get(parts[pair[0]], -99) < layers.get(parts[pair[1]], -99) and parts[pair[0]] in layers
    }
    mutual = sorted(pair for pair in calls if pair[::-1] in calls and pair[0] < pair[1])
    print(f"\nexit code {status}: {len(modules)} modules, {len(calls)} pairs that call")
    print(f"{len(upwards)} of them upwards, {len(mutual)} both ways")
    for (caller, callee), count in sorted(upwards.items()):
        print(f"  {Path(caller).relative_to(PACKAGE)} -> {Path(callee).relative_to(PACKAGE)}: {count}")
    for one, other in mutual:
        print(f"  {Path(one).relative_to(PACKAGE)} <-> {Path(other).relative_to(PACKAGE)}")


if __name__ == "__main__":
    main()
