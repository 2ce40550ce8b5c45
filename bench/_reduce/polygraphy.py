"""Polygraphy's `debug reduce` with the best check that one can give it.

Its check is asked whether the outputs of a part are beyond what the declared arithmetic explains (`compare` says that), on the
values that the reference has at the part's inputs. The candidate is cut at the same tensors. A part that a side cannot run is no
failure (`--fail-code 1`). So Polygraphy is told as much as we are, but where to look.
"""

from __future__ import annotations

import shlex
import socketserver
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parityscope.backends.targets import format_target, parse_target, with_option
from parityscope.case import load_model
from parityscope.case.extracting import extract_part
from parityscope.case.formats.npz import write_npz
from parityscope.case.graph import computing_nodes
from parityscope.errors import ParityError
from parityscope.records import Policy
from parityscope.study import Request, examine_request, open_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

_FAILED = 1
_ASK = """import socket, sys
asked = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
asked.sendall(b"?")
sys.exit(asked.recv(1)[0])
"""
_TOOL = "import sys; from polygraphy.tools import main; sys.exit(main())"
_LOADER = """import numpy as np
def load_data():
    yield dict(np.load({path!r}))
"""


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What is reduced. `names` pairs tensors (reference -> candidate), `values` are the reference's tensors of each sample."""

    model: Path
    candidate: str
    declared: str
    names: Mapping[str, str]
    values: Sequence[Mapping[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The reduced model (None: there is none), its nodes, and how often the check was run."""

    path: Path | None
    nodes: int
    runs: int
    said: str = ""


def examine_part(deployed: Deployed, part: Path, folder: Path, *, whole: bool) -> dict[str, Any]:
    """The study of a part of the model, of its outputs alone or `whole`.

    Raises:
        ParityError: a side cannot be cut there, or cannot run it.
    """
    model = load_model(part)
    samples = [{one.name: values[one.name] for one in model.inputs} for values in deployed.values]
    candidate, first = parse_target(deployed.candidate), deployed.values[0]
    if own := candidate.option("model"):
        cut = extract_part(
            load_model(own),
            {deployed.names.get(one.name, one.name): (one.name, first[one.name]) for one in model.inputs},
            {deployed.names[one.name]: (one.name, first[one.name]) for one in model.outputs},
            folder / "candidate.onnx",
        )
        candidate = with_option(candidate, "model", str(cut.path))
    for number, arrays in enumerate(samples):
        write_npz(folder / "inputs" / f"{number:06d}.npz", arrays)
    request = Request(
        model=part,
        candidate=format_target(candidate),
        inputs=folder / "inputs",
        policy=Policy(declared=deployed.declared),
        depth="causes" if whole else "outputs",
    )
    with open_request(request) as asked:
        return examine_request(replace(asked, folder=folder / "study"))


def reduce_by_polygraphy(deployed: Deployed, folder: Path) -> Found:
    """The part that `polygraphy debug reduce --mode bisect` ends with."""
    folder.mkdir(parents=True)
    (folder / "ask.py").write_text(_ASK, encoding="utf-8")
    inputs = {value.name for value in load_model(deployed.model).inputs}
    write_npz(folder / "sample.npz", {name: deployed.values[0][name] for name in inputs})
    (folder / "loader.py").write_text(_LOADER.format(path=str(folder / "sample.npz")), encoding="utf-8")
    runs: list[bool] = []

    def check() -> int:
        try:
            found = examine_part(deployed, folder / "polygraphy_debug.onnx", folder / f"run-{len(runs)}", whole=False)
        except (ParityError, KeyError) as error:
            print(f"    not run: {error}", file=sys.stderr)
            runs.append(False)
            return 2
        runs.append(found["verdict"] == "beyond")
        return _FAILED if runs[-1] else 0

    with Answering(check) as port:
        words = [sys.executable, "-c", _TOOL, "debug", "reduce", str(deployed.model), "-o", "reduced.onnx"]
        words += ["--mode", "bisect", "--data-loader-script", "loader.py", "--fail-code", str(_FAILED)]
        words += ["--check", sys.executable, "-S", "ask.py", str(port)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    path = folder / "reduced.onnx"
    if not path.exists():
        said = (done.stdout + done.stderr).strip().splitlines()[-1:] or [shlex.join(words)]
        return Found(path=None, nodes=0, runs=len(runs), said=said[0])
    return Found(path=path, nodes=len(computing_nodes(load_model(path).graph())), runs=len(runs))


class Answering:
    """A port of this machine that runs `check` for whoever connects, and answers with one byte."""

    def __init__(self, check: Callable[[], int]) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1)
                self.request.sendall(bytes([check()]))

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return int(self._server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
