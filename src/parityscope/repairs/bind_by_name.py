"""Bind inputs and outputs by name, for the TensorRT Python API.

What it changes: the deployment's own code. Arrays are put where the engine asks for them by name, whatever their order;
a name, type or shape that does not match is refused in words instead of computed with.

Why it repairs: an engine may order its inputs otherwise than the model does. With bindings given by position, two inputs of
the same shape and type are exchanged in silence.

Risk: none to the model. The lines need TensorRT 8.5 or newer (8.5 brought tensors by name, 10 removed bindings by
position).

Cost: none; addresses are set once per buffer.

How to undo: take the lines out again.

What the finding says: details "inputs" and "outputs": lists of names in the order of the reference model; optionally
"given": for each of "inputs", the name of the model's input whose data the deployment puts there now (to say what was
exchanged).

Source: NVIDIA TensorRT, Python API (ICudaEngine.get_tensor_name, IExecutionContext.set_tensor_address) and migration
guide from 8 to 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.repairs import Advice

if TYPE_CHECKING:
    from parityscope.records import Finding

_CODE = '''import tensorrt as trt

INPUTS = {inputs}
OUTPUTS = {outputs}
# TensorRT's types by numpy's and ml_dtypes' names; tensorrt.nptype knows neither BF16 nor FP8.
TYPES = {types}


def bind(engine, context, buffers):
    """buffers: name -> (device address, shape, numpy dtype or its name), for every input and output."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    if set(names) != {{*INPUTS, *OUTPUTS}}:
        raise ValueError(f"the engine has {{names}}, not {{[*INPUTS, *OUTPUTS]}}: was it built from another model?")
    for name in names:
        address, shape, dtype = buffers[name]
        wanted = TYPES.get(engine.get_tensor_dtype(name).name)
        if getattr(dtype, "__name__", str(dtype)) != wanted:
            raise TypeError(f"{{name}} is {{dtype}}, the engine reads and writes {{wanted}}")
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT and not context.set_input_shape(name, tuple(shape)):
            raise ValueError(f"the engine does not take {{name}} of shape {{tuple(shape)}}")
        context.set_tensor_address(name, int(address))


# Once per set of buffers; then, for every inference:
#     bind(engine, context, buffers)
#     context.execute_async_v3(stream_handle)
'''


def _write_binding_code(finding: Finding) -> str | None:
    inputs, outputs = (list(map(str, finding.details.get(side, ()))) for side in ("inputs", "outputs"))
    if not inputs or not outputs:
        return None
    from parityscope.backends.tensorrt.iotensors import DTYPES

    return _comment_on_exchange(finding, inputs) + _CODE.format(inputs=inputs, outputs=outputs, types=dict(DTYPES))


def _comment_on_exchange(finding: Finding, inputs: list[str]) -> str:
    given = [str(name) for name in finding.details.get("given", ())]
    wrong = [f"{name!r} gets the data of {held!r}" for name, held in zip(inputs, given, strict=False) if name != held]
    return f"# As deployed now: {'; '.join(wrong)}.\n" if wrong else ""


ADVICE = Advice(
    name="bind_by_name",
    title="Bind inputs and outputs by name",
    risk="none to the model; TensorRT 8.5 or newer is needed",
    write=_write_binding_code,
)
