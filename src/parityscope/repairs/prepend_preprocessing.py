"""Put the preprocessing into the model: it reads raw arrays.

What it changes: nodes in front of the model's input turn the raw array into what the input held: Cast, Transpose (layout),
Gather (channels), Sub and Div (per channel). The input keeps its name, and gets the raw array's type and layout.

Why it repairs: every program that runs the model then prepares its inputs alike: BGR for RGB, a missing division by 255 or
a wrong mean can no longer happen outside of it.

Risk: programs that prepare the input themselves must stop doing so; the model's interface changes, which needs the
reader's agreement. The nodes compute in FP32, and stay so only where the runtime is not told to lower them.

Cost: a pass over the input; less than the same in numpy.

How to undo: keep the original file; the repair only ever writes a copy.

What the finding says: details "consents" with "prepend_preprocessing" in it, and
  "input": name of the model's input;
  "raw_layout", "layout": order of the raw array's axes and of the model's, "NHWC" and "NCHW" say (default: the same);
  "channels": for each channel of the model, the raw channel that it is (default: in their order);
  "subtract", "divide": per channel of the model, or one number: (raw - subtract) / divide (default: 0 and 1);
  "raw_dtype": numpy name of the raw array's type (default uint8).

Source: the definitions of Cast, Transpose, Gather, Sub and Div in the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.arithmetic.graphs import add_constant
from parityscope.repairs import Repair
from parityscope.repairs._editing import has_consent, insert_before
from parityscope.repairs._preprocessing import preprocessing_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from parityscope.records import Finding
    from parityscope.repairs._preprocessing import Preprocessing

_NAME = "prepend_preprocessing"


def _apply_repair(model: ir.Model, finding: Finding) -> str | None:
    found = preprocessing_of(finding.details)
    if found is None or not has_consent(finding, _NAME):
        return None
    value = next((value for value in model.graph.inputs if value.name == found.input), None)
    if value is None or value.dtype is None or value.dtype.name != "FLOAT" or not _fits_input(value, found):
        return None
    steps = _prepend_steps(model, value, found)
    return f"{found.input} takes raw {found.raw_dtype} arrays; {', '.join(steps)} prepare them"


def _fits_input(value: ir.Value, found: Preprocessing) -> bool:
    if value.shape is None:
        return True
    if len(value.shape) != found.rank:
        return False
    size = value.shape[found.channel]
    wanted = {len(each) for each in (found.channels or (), found.subtract, found.divide) if len(each) > 1}
    return not isinstance(size, int) or wanted <= {size}


def _prepend_steps(model: ir.Model, value: ir.Value, found: Preprocessing) -> list[str]:
    import onnx_ir as ir

    name, first = str(value.name), model.graph[0]
    readers = list(value.uses())
    read_out = [index for index, output in enumerate(model.graph.outputs) if output is value]
    kind, shape = value.type, value.shape
    now, steps = value, []
    if found.raw_dtype != "float32":
        now = insert_before(
            first, "Cast", [now], f"{name}::float", [ir.AttrInt64("to", int(ir.DataType.FLOAT))], like=value
        )
        steps.append("Cast")
    if found.axes is not None:
        now = insert_before(first, "Transpose", [now], f"{name}::layout", [ir.AttrInt64s("perm", found.axes)])
        steps.append("Transpose")
    if found.channels is not None:
        order = add_constant(model.graph, np.array(found.channels, np.int64), f"{name}::order")
        now = insert_before(first, "Gather", [now, order], f"{name}::channels", [ir.AttrInt64("axis", found.channel)])
        steps.append("Gather")
    for operator, numbers in (("Sub", found.subtract), ("Div", found.divide)):
        if numbers:
            by = add_constant(model.graph, found.shaped(numbers), f"{name}::{operator.lower()}")
            now = insert_before(first, operator, [now, by], f"{name}::{operator.lower()}_done")
            steps.append(operator)
    now.type = kind
    now.shape = shape
    for user, index in readers:
        user.replace_input_with(index, now)
    for index in read_out:
        model.graph.outputs[index] = now
    value.type = ir.TensorType(ir.DataType.from_numpy(np.dtype(found.raw_dtype)))
    value.shape = _raw_shape(shape, found)
    return steps


def _raw_shape(shape: ir.Shape | None, found: Preprocessing) -> ir.Shape | None:
    import onnx_ir as ir

    if shape is None:
        return None
    sizes: list[int | ir.SymbolicDim] = list(shape)
    if found.channels is not None and max(found.channels) >= len(found.channels):
        sizes[found.channel] = ir.SymbolicDim(None)  # the raw array has channels that the model does not read
    axes = found.axes or tuple(range(found.rank))
    return ir.Shape([sizes[axes.index(axis)] for axis in range(found.rank)])


REPAIR = Repair(
    name=_NAME,
    title="Put the preprocessing into the model",
    risk="programs that prepare the input themselves must stop doing so",
    cost="a pass over the input",
    consent="the model's input becomes the raw array: its type and layout change",
    apply=_apply_repair,
)
