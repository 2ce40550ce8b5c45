"""The layers of a scene's engine, and the inspector's JSON of them in the layout of the scene's version."""

import json

from proving.tensorrt_replay.facts import numbers

_WORDS = {
    "FLOAT": ("Float", "FP32"),
    "HALF": ("Half", "FP16"),
    "BF16": ("BFloat16", "BF16"),
    "INT8": ("Int8", "INT8"),
    "INT32": ("Int32", "INT32"),
    "INT64": ("Int64", "INT64"),
    "BOOL": ("Bool", "BOOL"),
}


def layers_of(scene, facts):
    """The engine's layers; one inside of which tensors are marked by name is parted behind each (made: a mark ends a fusion)."""
    marks = set(facts["debug"] + facts["outputs"])
    found = []
    for layer in scene.data["layers"]:
        made = layer["makes"]  # per node of the layer: the network's tensor that it writes, with its shape
        cuts = [place for place, one in enumerate(made[:-1]) if one["name"] in marks]
        start = 0
        for place in cuts + [len(made) - 1]:
            part = layer["nodes"][start : place + 1]
            last = made[place]
            end = place == len(made) - 1
            name = layer["outputs"][0]["name"] if end else last["name"]
            output = dict(layer["outputs"][0]) if end else {"dtype": layer["type"], "shape": last["shape"]}
            output.update(name=name, value=output.get("value", last["name"]))
            if end and last["name"] in marks:
                output.update(name=last["name"])
            title = layer["name"] if not cuts else "+".join(part)
            inputs = layer["inputs"] if start == 0 else [found[-1]["outputs"][0]]
            found.append(dict(layer, name=title, nodes=part, inputs=inputs, outputs=[output]))
            start = place + 1
    return found


def inspected(scene, facts):
    """What `get_engine_information` gives: recorded words where the scene has some, else the layers in its version's layout."""
    if "inspected" in scene.data:
        return scene.data["inspected"]
    new = scene.product == "rtx" or numbers(scene.version)[0] >= 11
    layers = layers_of(scene, facts)
    if not facts["detailed"]:
        document = {"Layers": [layer["name"] for layer in layers]}
    else:
        document = {"Layers": [_layer(layer, new) for layer in layers]}
    told = scene.data["network"]
    names = [one["name"] for one in told["inputs"]] + told["outputs"] + facts["outputs"]
    if new:
        document["I/O Tensors"] = [
            {"Name": name, "IOMode": "Input" if place < len(told["inputs"]) else "Output"}
            for place, name in enumerate(names)
        ]
    else:
        document["Bindings"] = names
    # As TensorRT: parts are joined by a raw 0x1E, which is no strict JSON (NVIDIA/TensorRT#2779).
    return json.dumps(document).replace("\\u001e", "\x1e")


def _layer(layer, new):
    return {
        "Name": layer["name"],
        "LayerType": layer["kind"],
        "Inputs": [_tensor(one, new) for one in layer["inputs"]],
        "Outputs": [_tensor(one, new) for one in layer["outputs"]],
        "TacticName": layer.get("tactic", ""),
        "StreamId": 0,
        "Metadata": "\x1e".join("[ONNX Layer: {}]".format(node) for node in layer["nodes"]),
    }


def _tensor(one, new):
    short, long = _WORDS[one["dtype"]]
    held = {"Name": one["name"], "Location": "Device", "Dimensions": one["shape"]}
    if new:
        held.update(
            {"Format": "N/A due to dynamic shapes" if -1 in one["shape"] else "Row major linear", "Datatype": short}
        )
    else:
        held["Format/Datatype"] = "Row major linear {} format".format(long)
    return held
