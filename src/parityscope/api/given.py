"""What a Python program hands over -> what a `Request` takes: models in memory, samples, and candidates that run here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

__all__ = ["Candidate", "Data", "Network", "candidate_target", "data_source", "model_file"]

Network = Any  # a path, bytes, an onnx.ModelProto or an onnx_ir.Model: neither package is imported to say so
Candidate = Any  # a target, a path, a callable, an InferenceSession, or answers: one mapping or array a sample
Data = Any  # None, a path, one sample (a mapping, an array), or an iterable of samples

_FORMS = "a path, bytes, an onnx.ModelProto or an onnx_ir.Model"


@contextlib.contextmanager
def model_file(model: Network) -> Iterator[Path]:
    """The file of a model, which is there while the block lasts.

    Raises:
        ParityError: it is nothing that could be a model.
    """
    if isinstance(model, str | Path):
        yield Path(model)
        return
    with scratch_folder("model") as folder:
        yield _write_model(model, Path(folder))


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
    fix = f"give {_FORMS}; export a module of torch first: torch.onnx.export(module, args, 'model.onnx')"
    raise ParityError(f"a {_type_name(model)} is no model", fix=fix)


def data_source(inputs: Data, names: Callable[[], Sequence[str]]) -> str | Path | Stream | None:
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


def _stream_samples(items: Any, names: Callable[[], Sequence[str]]) -> Iterator[Streamed]:
    every = items if isinstance(items, Iterable) else (items[index] for index in range(len(items)))
    for index, item in enumerate(every):
        yield _make_sample(item, index, names)


def _make_sample(item: Any, index: int, names: Callable[[], Sequence[str]]) -> Streamed:
    where = f"sample {index}"
    item, right = split_truths(item)
    several = isinstance(item, Sequence) and not isinstance(item, str | bytes) and any(map(_is_array, item))
    given = item if isinstance(item, Mapping) else _order_by_names(item if several else [item], names(), where)
    arrays = {str(name): as_array(value, f"{where}, input {name!r}") for name, value in given.items()}
    truths = {str(name): as_array(value, f"{where}, truth {name!r}") for name, value in dict(right).items()}
    return Streamed(label=where, arrays=arrays, truths=truths)


def _order_by_names(values: Sequence[Any], names: Sequence[str], where: str) -> dict[str, Any]:
    if len(values) != len(names):
        held = f"{len(values)} array{'s' * (len(values) != 1)}"
        fix = "give dicts by input name: {" + ", ".join(f"'{name}': array" for name in names) + "}"
        raise ParityError(f"it has {held}, and the model takes {len(names)} ({', '.join(names)})", where=where, fix=fix)
    return dict(zip(names, values, strict=True))


@contextlib.contextmanager
def candidate_target(candidate: Candidate) -> Iterator[str]:
    """The text of a target: as it is, or of what runs here while the block lasts.

    A callable is given a dict of arrays by input name; a session of ONNX Runtime is run as it is; anything else are the answers
    themselves, one a sample (a mapping by output name, an array, a sequence in the order of the outputs).

    Raises:
        ParityError: it is nothing of that.
    """
    if isinstance(candidate, str | Path):
        yield str(candidate)
        return
    from parityscope.backends.python import handed_over

    with handed_over(_runner_of_candidate(candidate)) as target:
        yield target


def _runner_of_candidate(candidate: Candidate) -> Callable[[Sample], object]:
    if hasattr(candidate, "get_providers") and hasattr(candidate, "run"):
        names = [each.name for each in candidate.get_outputs()]
        taken = {each.name for each in candidate.get_inputs()}
        return lambda sample: dict(
            zip(names, candidate.run(None, {k: v for k, v in sample.arrays.items() if k in taken}), strict=True)
        )
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
        ) from error


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _type_name(value: object) -> str:
    return type(value).__name__
