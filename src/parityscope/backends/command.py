"""Any executable: `RUN INPUT_DIR OUTPUT_DIR`, so that a C++ or Triton deployment can be judged as it is.

`command?run=./infer.sh` starts the program once for each sample. INPUT_DIR holds `000000.npz` (arrays by input name) and
`manifest.json` (names, dtypes and shapes; the original image's path if there is one). The program writes
`000000.npz` or `000000.safetensors` with its outputs by name into OUTPUT_DIR.

Two requests in the manifest may be honoured or not. `tensors` lists intermediate tensors that are asked for beside the outputs,
and `marked` is then a copy of the model in which they are outputs, which is also what keeps an optimizer from fusing over
them. `optimization` is "disabled" where the program is asked to switch its optimizer off, and "as deployed" otherwise. A
program that knows versions may write them, as text by name, into `environment.json` beside its outputs.

The command line is split as a shell would split it, and run without a shell. What it prints is kept and shown
when it fails. This backend runs code that you name; it is never reused across invocations.

A copy of a model whose intermediate tensors are outputs, for runtimes that are other people's programs.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from parityscope.backends import Backend, Capture, Session
from parityscope.backends.machine import ENVIRONMENT_FILE, recorded_facts
from parityscope.backends.programs import run_program
from parityscope.backends.targets import one_of, with_option
from parityscope.case.extending import with_outputs
from parityscope.case.formats import restore_lost_type
from parityscope.case.formats.npz import open_npz, write_npz
from parityscope.case.formats.safetensors_file import open_safetensors
from parityscope.case.intake import external_files, read_message
from parityscope.errors import ParityError
from parityscope.plain_numbers import plain_number
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from parityscope.case import Model, Sample
    from parityscope.records import Target

STEM = "000000"
_DEFAULT_TIMEOUT_S = 600.0  # chosen: a sample that takes longer is taken for a hang; timeout= changes it
_LEVELS = ("as deployed", "disabled")
_LONGEST_S = 1e6  # chosen: 11 days; the kernel's timers take no infinity


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    try:
        words = shlex.split(target.option("run"))
    except ValueError as error:
        raise ParityError(
            f"run= cannot be split into words: {error}", where=target.option("run"), fix="close the quote"
        ) from None
    if not words:
        raise ParityError("command needs the program to run", fix="write command?run=./infer.sh")
    if shutil.which(words[0]) is None:
        there = Path(words[0]).is_file()
        raise ParityError(
            f"{words[0]!r} is not executable" if there else f"there is no program {words[0]!r}",
            where=target.option("run"),
            fix=f"chmod +x {shlex.quote(words[0])}" if there else "give its path, and make it executable",
        )
    timeout = parse_seconds(target.option("timeout"), _DEFAULT_TIMEOUT_S)
    level = one_of(target, "optimization", _LEVELS, _LEVELS[0])
    environment: dict[str, str] = {}
    with scratch_folder("marked") as scratch:
        marked = str(_marked_copy(model, capture.tensors, Path(scratch))) if capture.tensors else None
        asked = {"tensors": list(capture.tensors), "marked": marked, "optimization": level}

        def run(sample: Sample) -> Mapping[str, np.ndarray]:
            return exchange_sample(words, model, sample, timeout, asked, environment)

        yield Session(
            run=run,
            disturbs="none" if not capture.tensors else "as the program does",
            environment=environment,  # what the program says of itself is known when it ran
        )


def parse_seconds(text: str, default: float, option: str = "timeout") -> float:
    """The number of seconds that `option` gives ("60", "60s", "1.5"); `default` when it is empty."""
    if not text:
        return default
    value = plain_number(text.removesuffix("s"))
    if not 0 < value <= _LONGEST_S:
        problem = f"{option}={text!r} is not a number of seconds above 0 and up to {_LONGEST_S:,.0f}"
        raise ParityError(problem, fix=f"write {option}=60")
    return value


def exchange_sample(
    words: list[str],
    model: Model,
    sample: Sample,
    timeout: float,
    asked: Mapping[str, object],
    environment: dict[str, str],
) -> dict[str, np.ndarray]:
    """Runs `words INPUT_DIR OUTPUT_DIR` on one sample and reads what it wrote.

    `asked` is put into the manifest; what the program tells of its environment is put into `environment`.

    Raises:
        ParityError: the program fails, is killed, takes too long, or writes nothing that can be read.
    """
    with scratch_folder("command") as scratch:
        source, sink = Path(scratch, "inputs"), Path(scratch, "outputs")
        source.mkdir()
        sink.mkdir()
        write_npz(source / f"{STEM}.npz", sample.arrays)
        manifest = {**_make_manifest(model, sample), **asked}
        (source / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        run_program([*words, str(source), str(sink)], timeout=timeout, doing=f"sample {sample.name}")
        if (told := sink / ENVIRONMENT_FILE).is_file():
            environment.update(recorded_facts(told))
        return _read_outputs(sink, words[0], {value.name: value.dtype for value in model.outputs})


def _make_manifest(model: Model, sample: Sample) -> dict[str, object]:
    return {
        "schema": "parityscope-command/1",
        "model": str(model.path),
        "sample": {"index": sample.index, "name": sample.name, "file": f"{STEM}.npz"},
        "original": str(sample.original) if sample.original else None,
        "inputs": {
            name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in sample.arrays.items()
        },
        "outputs": [value.name for value in model.outputs],
    }


def _read_outputs(folder: Path, program: str, dtypes: Mapping[str, str]) -> dict[str, np.ndarray]:
    packed = folder / f"{STEM}.npz"
    plain = folder / f"{STEM}.safetensors"
    fix = f"let it write {STEM}.npz or {STEM}.safetensors, with its outputs by name, into its second argument"
    if not (packed.is_file() or plain.is_file()):
        written = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise ParityError(f"{program} ended well but wrote no outputs (it wrote: {written})", fix=fix)
    try:
        stored = open_npz([packed], program) if packed.is_file() else open_safetensors([plain], program)
        arrays = stored.read(0, stored.names(0))
    except ParityError as error:
        raise ParityError(f"{program} wrote a file that is no good: {error.problem}", fix=fix) from error
    fix = f"let it write float32, or {STEM}.safetensors"
    return {
        name: restore_lost_type(f"{program} wrote {name!r}", array, dtypes.get(name, ""), fix=fix)
        for name, array in arrays.items()
    }


def _switched_targets(target: Target) -> Iterator[Target]:
    yield with_option(target, "optimization", "disabled")


def _marked_copy(model: Model, tensors: Sequence[str], folder: Path) -> Path:
    """Writes `model` with `tensors` as further outputs into the empty `folder`; weights outside the file are linked, not copied.

    Raises:
        ParityError: the model's external data cannot be read.
        OSError: the folder cannot be written.
    """
    outputs = {value.name for value in model.outputs}
    wanted = [name for name in tensors if name in model.sites and name not in outputs]
    path = folder / model.path.name
    path.write_bytes(with_outputs(model.path, wanted))
    home = model.path.parent
    for file in external_files(read_message(model.path), model.path):
        link = folder / file.relative_to(home)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return path


BACKEND = Backend(
    name="command",
    title="Any executable",
    options={
        "run": "the command line, run as RUN INPUT_DIR OUTPUT_DIR",
        "optimization": "disabled: the manifest asks the program to switch its optimizer off",
    },
    precisions=("f32", "tf32", "f16", "bf16", "int8"),
    observes=True,
    open=_open_session,
    words="a program",
    runs_program=True,
    reads_model=False,
    onnxruntime="perhaps",
    tensorrt="perhaps",
    switched=_switched_targets,
)
