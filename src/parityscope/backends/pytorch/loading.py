"""A target -> the network ready to be called: an eager module, an exported program or a TorchScript file.

In: the options `module=`, `program=`, `script=`, `mode=`, `compile=` and the precision. Out: `LoadedNetwork`, whose
`call_user_code` takes tensors in the order of `parameters`.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parityscope.backends.pytorch.handing import find_handed
from parityscope.case.formats.loader import call_user_code, find_function
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parityscope.records import Target

MODES = ("eval", "train", "batch-statistics", "kept")
_SOURCES = ("module", "program", "script")
_HALVES = {"f16": "float16", "bf16": "bfloat16"}
_MESSAGE = 400  # characters of an exception's text that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What the network takes at one place: its name, whether it must be given, and whether by name only."""

    name: str
    needed: bool
    keyword: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNetwork:
    """A network: `kind` is the option that named it, `network` the module (or GraphModule), `call` what runs it.

    `half` is the torch dtype that floating inputs are converted to, None to leave them.
    """

    kind: str
    where: str
    network: Any  # torch.nn.Module, torch.fx.GraphModule or torch.jit.ScriptModule
    call: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    half: Any  # torch.dtype or None
    compiled: bool


def load_network(torch: Any, target: Target, device: Any) -> LoadedNetwork:
    """The network that `target` names, on `device`, in its mode and precision.

    Raises:
        ParityError: no network or several are named, one cannot be loaded, or an option does not fit it.
    """
    given = [(name, target.option(name)) for name in _SOURCES if target.option(name)]
    if len(given) != 1:
        raise ParityError(
            f"torch needs one network, and {len(given) or 'none'} is named" if not given else "torch runs one network",
            fix="write torch?module=file.py:function, torch?program=model.pt2 or torch?script=model.pt",
        )
    ((kind, where),) = given
    _check_options(kind, target)
    handed = find_handed(where)
    if hasattr(handed, "_orig_mod"):
        return _compiled_network(handed, where)
    half = getattr(torch, _HALVES[target.precision]) if target.precision in _HALVES else None
    if handed is not None:
        network = _copy_handed(handed, where)
    else:
        network = _load_from_function(torch, where) if kind == "module" else _load_from_file(torch, Path(where), kind)
    with _turn_into_errors(f"moving the network to {device}", where):
        network = network.to(device) if half is None else network.to(device=device, dtype=half)
    if kind == "module":
        _put_into_mode(torch, network, target.option("mode", "eval"))
    compiled = target.option("compile") == "on"
    return LoadedNetwork(
        kind=kind,
        where=where,
        network=network,
        call=torch.compile(network) if compiled else network,
        parameters=_network_parameters(network, kind),
        half=half,
        compiled=compiled,
    )


@contextlib.contextmanager
def errors_of_running(loaded: LoadedNetwork, sample: str) -> Iterator[None]:
    """Turns whatever the network raises into one error."""
    with _turn_into_errors(f"running sample {sample}", loaded.where):
        yield


@contextlib.contextmanager
def errors_of_exporting(loaded: LoadedNetwork) -> Iterator[None]:
    """Turns whatever an exporter raises into one error."""
    with _turn_into_errors("exporting it to ONNX", loaded.where):
        yield


def _check_options(kind: str, target: Target) -> None:
    for name, allowed in (("mode", MODES), ("compile", ("on", "off"))):
        value = target.option(name)
        if value and value not in allowed:
            raise ParityError(f"{name}={value!r} is not known", fix=f"use {name}={'|'.join(allowed)}")
    if kind != "module" and target.option("mode"):
        raise ParityError(
            f"mode= is for module=: a {kind} has the mode that it was exported in",
            fix="leave mode= out, or use module=",
        )


def _copy_handed(handed: Any, where: str) -> Any:
    """A copy, which may be converted and put into another mode; the program's own stays as it is."""
    with _turn_into_errors("copying it", where):
        return copy.deepcopy(handed) if hasattr(handed, "forward") else handed.module()


def _compiled_network(handed: Any, where: str) -> LoadedNetwork:
    """A compiled module as it is: with its own compiler, which a copy would not have."""
    original = handed._orig_mod  # noqa: SLF001 - the only way to what it was compiled from
    parameters = _network_parameters(original, "module")
    return LoadedNetwork(
        kind="module", where=where, network=original, call=handed, parameters=parameters, half=None, compiled=True
    )


def _load_from_function(torch: Any, text: str) -> Any:
    user = find_function(text)
    network = call_user_code(user, user.function, doing=f"calling {text}")
    if not isinstance(network, torch.nn.Module):
        raise ParityError(
            f"{text} gave a {type(network).__name__}, not a torch.nn.Module", where=text, fix="let it return the module"
        )
    return network


def _load_from_file(torch: Any, path: Path, kind: str) -> Any:
    if not path.is_file():
        raise ParityError(f"there is no {kind} at {path}", fix=f"give the path of the file: torch?{kind}=PATH")
    with _turn_into_errors("loading it", str(path)), warnings.catch_warnings():
        # TorchScript is deprecated, which is no news to whoever has such a file.
        warnings.simplefilter("ignore", DeprecationWarning)
        if kind == "script":
            return torch.jit.load(str(path), map_location="cpu").eval()
        return torch.export.load(path).module()


def _put_into_mode(torch: Any, network: Any, mode: str) -> None:
    if mode == "kept":
        return
    network.train(mode == "train")
    if mode == "batch-statistics":
        for module in network.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - what all of them are
                module.train()


def _network_parameters(network: Any, kind: str) -> tuple[Parameter, ...]:
    keyword: Any = ()
    if kind == "script":
        arguments = network.forward.schema.arguments[1:]
        return tuple(Parameter(name=one.name, needed=not one.has_default_value()) for one in arguments)
    if kind == "program":
        # Its own record of how it is called: leaves stand for tensors.
        spec = network._in_spec  # noqa: SLF001 - the only place that tells positional from keyword arguments
        _, keyword = spec.unflatten(range(spec.num_leaves))
    any_number = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return tuple(
        Parameter(
            name=one.name,
            needed=one.default is inspect.Parameter.empty,
            keyword=one.name in keyword or one.kind is inspect.Parameter.KEYWORD_ONLY,
        )
        for one in inspect.signature(network.forward).parameters.values()
        if one.kind not in any_number
    )


@contextlib.contextmanager
def _turn_into_errors(doing: str, where: str) -> Iterator[None]:
    try:
        yield
    except ParityError:
        raise
    # A network is the user's code, and PyTorch raises types of many kinds.
    except Exception as error:
        words = " ".join(str(error).split())[:_MESSAGE]
        raise ParityError(
            f"PyTorch failed while {doing}: {type(error).__name__}: {words}",
            where=where,
            fix="check that PyTorch alone runs this network on this input, on this device and in this precision",
        ) from error
