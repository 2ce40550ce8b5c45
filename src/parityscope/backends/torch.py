"""PyTorch: the network before its conversion, as an eager module, an exported program or a TorchScript file.

**What runs.** One of `module=file.py:function` (the function takes nothing and returns the `torch.nn.Module`),
`program=model.pt2` (`torch.export.save`) and `script=model.pt` (TorchScript). The ONNX model says what goes in and comes out:
inputs go by name where the module's parameters are called so, else all by order (`inputs=a,b` says the order); outputs are the
module's tensors in order, or by key where it returns a dict that has the names, in the type that the ONNX model declares.

**Mode.** A module is put into eval mode, since a fresh one is in training mode. `mode=kept` leaves it as the function made it,
`mode=train` trains, `mode=batch-statistics` puts only the normalizations over a batch into training mode: what an export
that forgot `model.eval()` computes, without the random zeros of Dropout.

**Precision.** `f16` and `bf16` convert parameters and inputs (`module.to(dtype)`), not as autocast does. TF32 is off unless
the target says `torch:tf32`; both switches (products, cuDNN) are set around every run, because their defaults
differ between versions and any import may change them.

**What can be observed.** The result of a module is the ONNX value that alone leaves the nodes of its scope (node names
`/layer1/conv/Conv`, or the exporter's `pkg.torch.onnx.name_scopes`). For a program, the ONNX value that has a node's name and
its operator. Nothing is matched by likeness: what has no such name is listed as not observed. Hooks change no arithmetic.
`compile=on` shows outputs only.

**Its graph.** As a candidate the network is exported, by the exporter that is there, and held against the ONNX file as one file
is against another (EXP005): weights, attributes and operators that differ are named, and proved.

**As reference or candidate.** `--reference torch?…` holds a deployment against the network itself, and the conversion is
then tested as a stage of its own (EXP001). `--candidate torch?…` holds the network against its ONNX file, and says at which
module they part. This runs code that you name, with your rights; a `.pt` or `.pt2` file may hold code too.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parityscope.backends import Backend, Capture, Session, probe_of_module
from parityscope.backends.targets import with_option
from parityscope.errors import ParityError
from parityscope.installed import Arithmetic, arithmetic_on_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from parityscope.backends import Probe
    from parityscope.case import Model, Sample
    from parityscope.installed import Machine
    from parityscope.records import Target

_TRAINED = "the module was in training mode; it was run in evaluation mode"


def _tell_switches(torch: Any) -> Mapping[str, str]:
    from parityscope.backends.pytorch.switches import torch_facts

    return torch_facts(torch)


def _write_graph(model: Model, target: Target, samples: Sequence[Mapping[str, np.ndarray]], path: Path) -> None:
    from parityscope.backends.pytorch.exporting import write_network

    write_network(model, target, samples, path)


@contextlib.contextmanager
def _open_session(model: Model, target: Target, capture: Capture) -> Iterator[Session]:
    import torch

    from parityscope.backends.pytorch import binding, capturing, loading
    from parityscope.backends.pytorch.switches import set_tf32

    device = _torch_device(torch, target)
    _check_precision(target, device)
    loaded = loading.load_network(torch, target, device)
    order = binding.input_order(loaded, model, target.option("inputs"))
    watched = capturing.watch_network(loaded, model, capture.tensors)
    tf32 = target.precision == "tf32"

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        feeds = binding.feed_tensors(torch, loaded, {name: sample.arrays[name] for name in order.names}, device)
        with set_tf32(torch, tf32=tf32), torch.no_grad(), loading.errors_of_running(loaded, sample.name):
            made, captured = watched.run(*order.arranged(feeds))
        return {
            **binding.outputs_by_name(torch, model, made, loaded.where),
            **binding.tensors_as_arrays(torch, capturing.keep_wanted(captured, capture.tensors)),
        }

    with contextlib.closing(watched):
        yield Session(
            run=run,
            absent=watched.absent,
            environment={
                "torch": str(torch.__version__),
                "device": str(device),
                "tf32": "on" if tf32 else "off",
                "mode": target.option("mode", "eval"),
                "inputs bound": order.words,
                **({"note": _TRAINED} if _is_put_into_eval(target) else {}),
                **({"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
            },
        )


def _is_put_into_eval(target: Target) -> bool:
    """Whether a program handed over a module in training mode, which nobody asked to keep."""
    from parityscope.backends.pytorch.handing import find_handed

    handed = find_handed(target.option("module"))
    return bool(getattr(handed, "training", False)) and target.option("mode", "eval") == "eval"


def _torch_device(torch: Any, target: Target) -> Any:
    """The torch.device of a target.

    Raises:
        ParityError: there is none of that name, or PyTorch cannot use it here.
    """
    text = target.option("device", "cpu")
    kind, _, number = text.partition(":")
    if kind not in {"cpu", "cuda"} or (number and not number.isdigit()):
        raise ParityError(f"torch has no device {text!r}", fix="use cpu, cuda or cuda:1")
    if kind == "cuda" and int(number or "0") >= torch.cuda.device_count():
        build = torch.version.cuda
        raise ParityError(
            f"PyTorch {torch.__version__} sees {torch.cuda.device_count()} GPUs, so there is no {text}",
            fix="use device=cpu, or a machine with an NVIDIA GPU"
            if build
            else "install a build of PyTorch with CUDA: this one is for CPUs",
        )
    return torch.device(text)


def _check_precision(target: Target, device: Any) -> None:
    if target.precision == "tf32" and device.type != "cuda":
        raise ParityError("TF32 exists on CUDA devices only", fix="add device=cuda, or leave tf32 out")


def _switched_targets(target: Target) -> Iterator[Target]:
    yield replace(target, precision="")
    if target.option("compile") == "on":
        yield with_option(target, "compile", "off")


def _origin_targets(target: Target) -> Iterator[Target]:
    yield replace(target, precision="")


def _list_arithmetic(machine: Machine) -> Iterator[Arithmetic]:
    yield Arithmetic(target="torch", computes="the network's types", tf32="none", because="on a CPU")
    told = machine.told.get("torch", {})
    if "capability" in told.get("gpu", ""):
        own = f"its own defaults: products {told.get('default TF32 of products', '?')}, cuDNN "
        own += told.get("default TF32 of convolutions", "?")
        yield arithmetic_on_gpu(machine, "torch?device=cuda", "the network's types", own)


def _linked_libraries(probe: Probe) -> Iterator[tuple[str, int]]:
    version = probe.facts.get("cuda", "")
    if version[:1].isdigit():
        yield "torch", int(version.partition(".")[0])


_NO_TF32 = "torch.backends.cuda.matmul.allow_tf32 = False\ntorch.backends.cudnn.allow_tf32 = False"


BACKEND = Backend(
    name="torch",
    title="PyTorch",
    called=("pytorch",),
    opens={".pt2": "program"},
    options={
        "module": "file.py:function that returns the torch.nn.Module",
        "program": "an exported program (.pt2)",
        "script": "a TorchScript file (.pt)",
        "inputs": "a,b: the model's inputs in the order of the network's parameters, where names do not tell",
        "mode": "eval (default), train, batch-statistics or kept; for module=",
        "compile": "on: torch.compile; off (default)",
        "device": "cpu (default), cuda or cuda:N",
    },
    precisions=("f32", "tf32", "f16", "bf16"),
    observes=True,
    probe=probe_of_module("torch", "'parityscope[torch]'", _tell_switches),
    open=_open_session,
    switched=_switched_targets,
    origins=_origin_targets,
    write_graph=_write_graph,
    settings={
        "tf32_off": _NO_TF32,
        "f32": f"{_NO_TF32}\ntorch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False",
    },
    arithmetic=_list_arithmetic,
    linked=_linked_libraries,
)
