"""The ONNX model's inputs -> the network's parameters, and the network's results -> the ONNX model's outputs.

By name where every input has a parameter of its name, by order where none has, and never by a mixture, which is how two
inputs of one shape get exchanged. Results are flattened as exporters flatten them: tuples and lists in order, dicts in the
order of their keys' insertion, None left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parityscope.backends.pytorch.loading import LoadedNetwork
    from parityscope.case import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which input goes to which parameter; `names` are the inputs, `keys` the parameters' names ("" is by position)."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    words: str

    def arranged(self, tensors: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        pairs = list(zip(self.names, self.keys, strict=True))
        return [tensors[name] for name, key in pairs if not key], {key: tensors[name] for name, key in pairs if key}


def input_order(loaded: LoadedNetwork, model: Model, asked: str) -> Order:
    """How the inputs of `model` go into the network; `asked` is the option `inputs=` ("" if not given).

    Raises:
        ParityError: names match in part, there are too many or too few, or `asked` names other inputs.
    """
    return order_of_names(loaded, [value.name for value in model.inputs], asked)


def order_of_names(loaded: LoadedNetwork, names: list[str], asked: str = "") -> Order:
    """How inputs of these names, in the model's order, go into the network; `asked` as of `input_order`.

    Raises:
        ParityError: names match in part, there are too many or too few, or `asked` names other inputs.
    """
    known = [one.name for one in loaded.parameters]
    if asked:
        names = _bind_as_asked(asked.split(","), names, loaded.where)
    elif names and set(names) <= set(known):
        return _bind_by_name(loaded, names, known)
    elif set(names) & set(known):
        shared = ", ".join(name for name in names if name in known)
        raise ParityError(
            f"only some inputs are called as the network's parameters are ({shared}), so their order is not certain: the "
            f"model has {', '.join(names)}, the network takes {', '.join(known)}",
            where=loaded.where,
            fix=f"say the order of the network's parameters: inputs={','.join(names)}",
        )
    _check_count(loaded, names, known)
    pairs = ", ".join(f"{name} -> {key}" for name, key in zip(names, known, strict=False))
    keys = tuple(one.name if one.keyword else "" for one in loaded.parameters[: len(names)])
    return Order(names=tuple(names), keys=keys or ("",) * len(names), words=f"by order: {pairs or ', '.join(names)}")


def feed_tensors(torch: Any, loaded: LoadedNetwork, sample: Mapping[str, np.ndarray], device: Any) -> dict[str, Any]:
    """The sample as tensors on `device`, floating ones in the network's precision."""
    found = {}
    for name, array in sample.items():
        tensor = _as_tensor(torch, array).to(device)
        found[name] = tensor.to(loaded.half) if loaded.half is not None and tensor.is_floating_point() else tensor
    return found


def outputs_by_name(torch: Any, model: Model, made: object, where: str) -> dict[str, np.ndarray]:
    """What the network gave, by the names and in the types of the model's outputs.

    Raises:
        ParityError: it gave another number of tensors.
    """
    names = [value.name for value in model.outputs]
    if isinstance(made, Mapping) and set(names) <= set(made):
        found = [made[name] for name in names]
    else:
        found = _flatten_tensors(torch, made)
    if len(found) != len(names):
        raise ParityError(
            f"the network gives {len(found)} tensors and the model has {len(names)} outputs ({', '.join(names)})",
            where=where,
            fix="let the function return a module whose forward gives these outputs, in this order or in a dict by name",
        )
    given = tensors_as_arrays(torch, dict(zip(names, found, strict=True)))
    return {value.name: _restore_declared_type(given[value.name], value.dtype) for value in model.outputs}


def tensors_as_arrays(torch: Any, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors as arrays in their own types, copied."""
    return {name: _as_array(torch, tensor) for name, tensor in tensors.items()}


def _bind_by_name(loaded: LoadedNetwork, names: Sequence[str], known: Sequence[str]) -> Order:
    """Each input to the parameter of its name; by position as long as no parameter is left out before it."""
    keys = []
    for position, one in enumerate(one for one in loaded.parameters if one.name in names):
        plain = not one.keyword and known[position] == one.name
        keys.append((one.name, "" if plain else one.name))
    return Order(names=tuple(name for name, _ in keys), keys=tuple(key for _, key in keys), words="by name")


def _bind_as_asked(asked: Sequence[str], names: Sequence[str], where: str) -> list[str]:
    if sorted(asked) != sorted(names):
        raise ParityError(
            f"inputs={','.join(asked)} are not the model's inputs ({', '.join(names)})",
            where=where,
            fix=f"name each once, in the order of the network's parameters: inputs={','.join(names)}",
        )
    return list(asked)


def _check_count(loaded: LoadedNetwork, names: Sequence[str], known: Sequence[str]) -> None:
    needed = [one.name for one in loaded.parameters if one.needed]
    if known and not len(needed) <= len(names) <= len(known):
        raise ParityError(
            f"the model has {len(names)} inputs ({', '.join(names)}) and the network takes {', '.join(known)}",
            where=loaded.where,
            fix="let the function return a module whose forward takes exactly the model's inputs, by their names",
        )


def _flatten_tensors(torch: Any, made: object) -> list[Any]:
    if isinstance(made, torch.Tensor):
        return [made]
    if isinstance(made, Mapping):
        return [tensor for one in made.values() for tensor in _flatten_tensors(torch, one)]
    if isinstance(made, tuple | list):
        return [tensor for one in made for tensor in _flatten_tensors(torch, one)]
    return []


def _as_tensor(torch: Any, array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _as_array(torch: Any, tensor: Any) -> np.ndarray:
    import ml_dtypes

    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return np.array(plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.array(plain.numpy())


def _restore_declared_type(array: np.ndarray, dtype: str) -> np.ndarray:
    """Halves as the declared float type, which holds them exactly; another kind of type stays, to be reported."""
    if array.dtype.name in {"float16", "bfloat16"} and dtype in {"float32", "float64"}:
        return array.astype(dtype)
    return array
