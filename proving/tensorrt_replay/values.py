"""What a scene's engine computes, by ONNX Runtime without its own optimizations; each answer is kept beside the scene.

An interpreter without ONNX Runtime finds the answers that another one left there.
"""

import hashlib
import os

import numpy as np

__all__ = ["answers"]


def answers(folder, model, inputs, wanted):
    """The values `wanted` of `model` (a file of the scene's folder) for `inputs`, by name."""
    path = os.path.join(folder, "answers", _key(model, inputs) + ".npz")
    if os.path.exists(path):
        with np.load(path, allow_pickle=False) as held:
            kept = {name: held["v%d" % place] for place, name in enumerate(held["names"].tolist())}
        if all(name in kept for name in wanted):
            return kept
    found = _run(os.path.join(folder, model), inputs)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    arrays = {"v%d" % place: array for place, array in enumerate(found.values())}
    np.savez(path, names=np.array(list(found)), **arrays)
    return found


def _key(model, inputs):
    digest = hashlib.sha256(model.encode())
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        digest.update("{}{}{}".format(name, array.dtype, array.shape).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _run(path, inputs):
    """Every value of the model that ONNX Runtime can hand out, by name."""
    import onnx
    import onnxruntime as ort

    model = onnx.load(path)
    outputs = [value.name for value in model.graph.output]
    typed = onnx.shape_inference.infer_shapes(model)
    known = {value.name: value for value in typed.graph.value_info}
    inner = [name for node in model.graph.node for name in node.output if name in known and name not in outputs]
    for name in inner:
        model.graph.output.append(known[name])
    options = ort.SessionOptions()
    # The scene says what is rounded where; an optimizer that takes Casts away would say something else.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs + inner, session.run(outputs + inner, inputs)))
