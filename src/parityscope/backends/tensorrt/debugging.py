"""TensorRT's debug listener around `listening.Heard`: a class of TensorRT's own kind, because it calls back into nothing else."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends.tensorrt.decoding import nbytes_of
from parityscope.backends.tensorrt.iotensors import DTYPES
from parityscope.backends.tensorrt.memory import pointer_of
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from parityscope.backends.tensorrt.listening import Heard
    from parityscope.backends.tensorrt.memory import Device
    from parityscope.backends.tensorrt.packages import Package

__all__ = ["listen_to_context"]


def listen_to_context(package: Package, context: Any, heard: Heard, device: Device) -> Any:
    """Turns on what `context` shows, into `heard`; the listener that is given back must outlive the context.

    Raises:
        ParityError: TensorRT refuses the listener.
    """
    trt = package.module

    class Listener(trt.IDebugListener):  # type: ignore[misc,name-defined] # TensorRT calls back only into a class derived from its own
        def process_debug_tensor(self, addr: Any, location: Any, kind: Any, shape: Any, name: str, stream: int) -> bool:
            if not heard.wants(name):
                return True
            dtype = DTYPES.get(kind.name, kind.name.lower())
            dims = tuple(shape)
            nbytes, address = nbytes_of(dtype, dims), pointer_of(addr)
            if location.name == "HOST":
                content = np.frombuffer(ctypes.string_at(address, nbytes), dtype=np.uint8)
            else:
                content = device.fetch_from(address, nbytes, stream)
            heard.take(name, dtype, dims, content)
            return True

    listener = Listener()
    if not context.set_debug_listener(listener):
        raise ParityError("TensorRT refuses a debug listener", fix="use observe=outputs")
    context.set_all_tensors_debug_state(True)
    if hasattr(context, "unfused_tensors_debug_state"):
        context.unfused_tensors_debug_state = True
    return listener
