"""What a Python program hands over -> what a `Request` takes: models in memory, samples, and candidates that run here."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.pytorch.handing import handed_network, is_network
from parityscope.case.arrays import as_array
from parityscope.case.formats import Streamed
from parityscope.case.formats.loader import split_truths
from parityscope.case.sources import Stream
from parityscope.errors import ParityError
from parityscope.private_folders import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from parityscope.case import Sample

# A path, bytes, an onnx.ModelProto, an onnx_ir.Model, a torch.nn.Module or an ExportedProgram: no package is imported to say so.
Network = Any
Candidate = Any  # a target, a path, a callable, a module of torch, an InferenceSession, or answers: one mapping or array a sample
Data = Any  # None, a path, one sample (a mapping, an array), or an iterable of samples

_FORMS = "a path, bytes, an onnx.ModelProto, an onnx_ir.Model, a torch.nn.Module or an ExportedProgram"
_EXPORTED_WITH = 32  # samples at most, whose sizes say which are dynamic; chosen


@contextlib.contextmanager
def model_and_data(
    model: Network, inputs: Data, *, checked: bool = True
) -> Iterator[tuple[Path, str | Path | Stream | None]]:
    """The file of a model and its DATA, which are there while the block lasts.

    A network of torch is exported with the first samples; `checked` holds the file against it and warns where they differ.

    Raises:
        ParityError: one is nothing that could be that, or the network cannot be exported.
    """
    if isinstance(model, str | Path):
        yield Path(model), _data_source(inputs, _input_names(Path(model)))
        return
    with scratch_folder("model") as scratch:
        folder = Path(scratch)
        if is_network(model):
            path, inputs = _export_model(model, inputs, folder, checked=checked)
        else:
            path = _write_model(model, folder)
        yield path, _data_source(inputs, _input_names(path))


@contextlib.contextmanager
def model_file(model: Network, inputs: Data = None) -> Iterator[Path]:
    """The file of a model, which is there while the block lasts; `inputs` are what a network of torch is exported with.

    Raises:
        ParityError: as `model_and_data`.
    """
    with model_and_data(model, inputs if is_network(model) else None) as (path, _):
        yield path


def _export_model(model: Network, inputs: Data, folder: Path, *, checked: bool) -> tuple[Path, Data]:
    """The file, and the inputs, of which the first were taken in between."""
    from parityscope.backends.pytorch.exporting import export_network, input_names_of

    path = folder / f"{_type_name(model)}.onnx"
    is_module = hasattr(model, "forward")
    if inputs is None or isinstance(inputs, str | Path):
        if is_module:
            fix = "give its samples as arrays: inputs={'x': array}, or a list of those; or export it yourself"
            raise ParityError(f"a {_type_name(model)} is exported with its inputs, and none are in memory", fix=fix)
        export_network(model, (), path)
        return path, inputs
    one = isinstance(inputs, Mapping) or _is_array(inputs)
    items = iter([inputs]) if one else _iterate_items(inputs)
    first = list(itertools.islice(items, _EXPORTED_WITH))
    if not first:
        raise ParityError("there are no samples", fix="give at least one")
    samples = [_make_sample(item, place, functools.partial(input_names_of, model)) for place, item in enumerate(first)]
    export_network(model, [dict(sample.arrays) for sample in samples], path)
    if checked:
        _warn_of_difference(model, path, samples)
    return path, itertools.chain(first, items)


def _warn_of_difference(model: Network, path: Path, samples: Sequence[Streamed]) -> None:
    """Warns where the file computes something else than the network, by more than FP32 rounding explains."""
    import warnings

    from parityscope.study import Request, examine_request, open_request

    with handed_network(model) as network, scratch_folder("run") as scratch:
        data = Stream(origin="Python", samples=iter(samples))
        request = Request(model=path, reference=network, candidate="ort", inputs=data, declared="f32", depth="outputs")
        with open_request(request) as asked:
            document = examine_request(replace(asked, folder=Path(scratch)))
    beyond = [one for one in document["outputs"] if one["verdict"] == "beyond"]
    if beyond:
        told = ", ".join(f"{one['name']!r} by {one['rel_l2']}" for one in beyond)
        warnings.warn(
            f"the ONNX file that torch exported computes something else than the {_type_name(model)}: {told} (relative L2); "
            "what is told is of the file. ps.diagnose(module, candidate='ort', inputs=...) says why",
            stacklevel=2,
        )


def _write_model(model: Network, folder: Path) -> Path:
    graph = getattr(model, "graph", None)
    name = "".join(sign if sign.isalnum() else "_" for sign in str(getattr(graph, "name", "") or ""))
    path = folder / f"{name[:60] or 'model'}.onnx"
    if isinstance(model, bytes | bytearray | memoryview):
        path.write_bytes(model)
        return path
    if hasattr(model, "SerializeToString") and graph is not None:
        import onnx

        large = model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
        onnx.save(model, path, save_as_external_data=large)
        return path
    if graph is not None and hasattr(model, "opset_imports"):
        import onnx_ir

        external = sum(each.const_value.nbytes for each in graph.initializers.values() if each.const_value) >> 30
        onnx_ir.save(model, path, external_data=f"{path.name}.data" if external else None)
        return path
    fix = f"give {_FORMS}"
    raise ParityError(f"a {_type_name(model)} is no model", fix=fix)


def _data_source(inputs: Data, names: Callable[[int], Sequence[str]]) -> str | Path | Stream | None:
    """DATA: as it is where it is a path or None, else a stream of samples.

    A mapping is one sample, by input name; so is an array, where there is one input. Everything else is iterated over (a
    list, a generator, a data set with `__len__` and `__getitem__`), and each item is a sample in the same sense, or a
    sequence of arrays in the order of `names`, which are asked for where a sample has none. A pair of mappings is a sample and
    what is right for it.

    Raises:
        ParityError: it is nothing of that.
    """
    if inputs is None or isinstance(inputs, str | Path):
        return inputs
    if isinstance(inputs, Mapping) or _is_array(inputs):
        return Stream(origin="Python", samples=iter([_make_sample(inputs, 0, names)]))
    if isinstance(inputs, Iterable) or (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")):
        return Stream(origin=f"Python ({_type_name(inputs)})", samples=_stream_samples(inputs, names))
    fix = "give a path, a dict of arrays by input name, or an iterable of those"
    raise ParityError(f"a {_type_name(inputs)} is no data", fix=fix)


def _input_names(path: Path) -> Callable[[int], Sequence[str]]:
    """Gives the names of the model's inputs, in order, however many are wanted; it is read when they are first asked for."""

    @functools.cache
    def names(_count: int) -> Sequence[str]:
        from parityscope.case import load_model

        return tuple(value.name for value in load_model(path).inputs)

    return names


def _stream_samples(items: Any, names: Callable[[int], Sequence[str]]) -> Iterator[Streamed]:
    for index, item in enumerate(_iterate_items(items)):
        yield _make_sample(item, index, names)


def _iterate_items(items: Any) -> Iterator[Any]:
    return iter(items) if isinstance(items, Iterable) else (items[index] for index in range(len(items)))


def _make_sample(item: Any, index: int, names: Callable[[int], Sequence[str]]) -> Streamed:
    where = f"sample {index}"
    item, right = split_truths(item)
    several = isinstance(item, Sequence) and not isinstance(item, str | bytes) and any(map(_is_array, item))
    given = item if isinstance(item, Mapping) else _order_by_names(item if several else [item], names, where)
    arrays = {str(name): as_array(value, f"{where}, input {name!r}") for name, value in given.items()}
    truths = {str(name): as_array(value, f"{where}, truth {name!r}") for name, value in dict(right).items()}
    return Streamed(label=f"item {index}", arrays=arrays, truths=truths)


def _order_by_names(values: Sequence[Any], asked: Callable[[int], Sequence[str]], where: str) -> dict[str, Any]:
    names = asked(len(values))
    if len(values) != len(names):
        held = f"{len(values)} array{'s' * (len(values) != 1)}"
        fix = "give dicts by input name: {" + ", ".join(f"'{name}': array" for name in names) + "}"
        raise ParityError(f"it has {held}, and the model takes {len(names)} ({', '.join(names)})", where=where, fix=fix)
    return dict(zip(names, values, strict=True))


@contextlib.contextmanager
def candidate_target(candidate: Candidate, exported: Path | None = None) -> Iterator[str]:
    """The text of a target: as it is, or of what runs here while the block lasts.

    A module of torch is run in eval mode as a copy, and as it is where it is compiled; its layers are seen. Another callable is
    given a dict of arrays by input name; a session of ONNX Runtime is run as it is; anything else are the answers
    themselves, one a sample (a mapping by output name, an array, a sequence in the order of the outputs). `exported` is the
    model's file where its exporter named the outputs: other names are then taken in their order.

    Raises:
        ParityError: it is nothing of that.
    """
    if isinstance(candidate, str | Path):
        yield str(candidate)
        return
    if is_network(candidate):
        with handed_network(candidate) as target:
            yield target
        return
    from parityscope.backends.python import handed_over

    run = _runner_of_candidate(candidate)
    with handed_over(run if exported is None else _with_names_of(exported, run)) as target:
        yield target


def _with_names_of(path: Path, run: Callable[[Sample], object]) -> Callable[[Sample], object]:
    """`run`, whose outputs are called as those of the file where all are called otherwise and number and shapes agree."""
    import warnings

    from parityscope.case import load_model

    outputs = load_model(path).outputs

    def run_renamed(sample: Sample) -> object:
        given = run(sample)
        if (
            not isinstance(given, Mapping)
            or len(given) != len(outputs)
            or any(one.name in given for one in outputs)
            or not all(_has_shape(value, one.shape) for one, value in zip(outputs, given.values(), strict=True))
        ):
            return given
        pairs = ", ".join(f"{one.name!r} is {name!r}" for one, name in zip(outputs, given, strict=True))
        warnings.warn(f"torch names no outputs, so that they are paired by their order: {pairs}", stacklevel=2)
        return {one.name: value for one, value in zip(outputs, given.values(), strict=True)}

    return run_renamed


def _has_shape(value: object, shape: Sequence[int | str | None] | None) -> bool:
    """Whether a value may be a tensor of that shape, whose sizes need not all be known."""
    found = getattr(value, "shape", None)
    if shape is None or found is None:
        return True
    return len(found) == len(shape) and all(
        not isinstance(size, int) or size == own for size, own in zip(shape, found, strict=True)
    )


def exported_file(model: Network, path: Path) -> Path | None:
    """The model's file, where the exporter of its network named the outputs."""
    return path if is_network(model) else None


def own_reference(model: Network, reference: Candidate | None) -> Candidate:
    """The reference that was asked for; else a network of torch itself, and ONNX Runtime for every other model."""
    if reference is not None:
        return reference
    return model if is_network(model) else "ort"


def _runner_of_candidate(candidate: Candidate) -> Callable[[Sample], object]:
    if hasattr(candidate, "get_providers") and hasattr(candidate, "run"):
        names = [each.name for each in candidate.get_outputs()]
        taken = {each.name for each in candidate.get_inputs()}

        def run_session(arrays: dict[str, np.ndarray]) -> object:
            return dict(zip(names, candidate.run(None, {k: v for k, v in arrays.items() if k in taken}), strict=True))

        return lambda sample: _call_candidate(run_session, sample)
    if callable(candidate):
        return lambda sample: _call_candidate(candidate, sample)
    if isinstance(candidate, Mapping) or _is_array(candidate):
        answers: list[Any] = [candidate]
    elif isinstance(candidate, Iterable):
        answers = list(candidate)
    else:
        fix = "give a target ('ort', 'trt:f16' ...), a callable, an onnxruntime.InferenceSession, or answers"
        raise ParityError(f"a {_type_name(candidate)} is no candidate", fix=fix)

    def answer(sample: Sample) -> object:
        if sample.index >= len(answers):
            raise ParityError(
                f"there are {len(answers)} answers, and none for sample {sample.index}", fix="give one a sample"
            )
        return answers[sample.index]

    return answer


def _call_candidate(candidate: Callable[[dict[str, np.ndarray]], object], sample: Sample) -> object:
    try:
        return candidate(dict(sample.arrays))
    except ParityError:
        raise
    except Exception as error:
        raise ParityError(
            f"the candidate failed: {type(error).__name__}: {error}",
            where=f"sample {sample.index}",
            fix="it is called with a dict of arrays by input name; see the exception that caused this",
            failing=True,
        ) from error


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _type_name(value: object) -> str:
    return type(value).__name__
