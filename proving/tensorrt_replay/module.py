"""A scene -> a module with TensorRT's Python interface, as far as the scene's version has it."""

import enum
import json
import os
import signal
import sys
import types

from proving.tensorrt_replay.building import building_classes
from proving.tensorrt_replay.facts import has
from proving.tensorrt_replay.running import running_classes

_ENUMS = {
    "DataType": "FLOAT HALF INT8 INT32 BOOL UINT8 FP8 BF16 INT64 INT4 FP4 E8M0",
    "BuilderFlag": "FP16 INT8 DEBUG GPU_FALLBACK REFIT TF32 VERSION_COMPATIBLE OBEY_PRECISION_CONSTRAINTS "
    "PREFER_PRECISION_CONSTRAINTS BF16 FP8 REFIT_IDENTICAL REFIT_INDIVIDUAL STRIP_PLAN STRICT_NANS EDITABLE_TIMING_CACHE "
    "DISTRIBUTIVE_INDEPENDENCE",
    "NetworkDefinitionCreationFlag": "EXPLICIT_BATCH STRONGLY_TYPED",
    "ProfilingVerbosity": "LAYER_NAMES_ONLY NONE DETAILED",
    "LayerInformationFormat": "ONELINE JSON",
    "HardwareCompatibilityLevel": "NONE AMPERE_PLUS SAME_COMPUTE_CAPABILITY",
    "MemoryPoolType": "WORKSPACE DLA_MANAGED_SRAM",
    "TacticSource": "CUBLAS CUBLAS_LT CUDNN EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS",
    "DeviceType": "GPU DLA",
    "TensorIOMode": "NONE INPUT OUTPUT",
    "TensorFormat": "LINEAR CHW2 HWC8 CHW4",
    "TensorLocation": "DEVICE HOST",
    "LayerType": "CONVOLUTION ACTIVATION ELEMENTWISE CONSTANT MATRIX_MULTIPLY REDUCE UNARY SOFTMAX CAST SHUFFLE OTHER",
    "ComputeCapability": "NONE CURRENT SM75 SM80 SM86 SM89 SM120",
}
_SEVERITIES = "INTERNAL_ERROR ERROR WARNING INFO VERBOSE"


class Scene:
    """A scene's data, and where it lies; what happens to it is noted in `events`."""

    def __init__(self, folder):
        with open(os.path.join(folder, "scene.json"), encoding="utf-8") as file:
            self.data = json.load(file)
        self.folder = folder
        self.version, self.product = self.data["version"], self.data["product"]
        self.faults = self.data.get("faults", {})
        self.plugins = set()
        self.events = []

    def has(self, member):
        return has(member, self.version, self.product)

    def words_of(self, step, usual):
        """The words (a key of `facts.json`) with which a step fails."""
        return self.faults.get("words", {}).get(step, usual)

    def enter(self, step):
        """Notes a step; where the scene says so, the process dies or hangs in it, as with a fault in native code.

        `{"dies": ["execute", 3]}`: in the third one of a process; several such pairs may stand there.
        """
        self.events.append(step)
        now = [step, self.events.count(step)]
        dies = self.faults.get("dies", ())
        if now in [dies[place : place + 2] for place in range(0, len(dies), 2)]:
            sys.stderr.write("[TRT] [V] the stand-in dies in {}\n".format(step))
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        while self.faults.get("hangs") == now:
            signal.pause()


def open_replay(folder):
    """The module of the scene in `folder`."""
    scene = Scene(folder)
    name = "tensorrt" if scene.product == "tensorrt" else "tensorrt_rtx"
    module = types.ModuleType(name, "A stand-in that replays a scene; nothing of TensorRT's is executed.")
    module.__version__ = scene.version
    module.made_by = "the stand-in proving/tensorrt_replay: nothing of TensorRT was executed"
    module.scene = scene
    for title, members in _ENUMS.items():
        if scene.has(title):
            kept = [one for one in members.split() if scene.has("{}.{}".format(title, one))]
            setattr(module, title, enum.IntEnum(title, [(one, place) for place, one in enumerate(kept)]))
    module.ILogger = type("ILogger", (), {"Severity": _Severity, "__init__": lambda self: None})
    module.Dims = tuple

    def init_libnvinfer_plugins(logger, namespace):
        scene.plugins.add("InstanceNormalization_TRT")
        return True

    module.init_libnvinfer_plugins = init_libnvinfer_plugins
    for one in building_classes(module, scene) + running_classes(module, scene):
        if not scene.has(one.__name__):
            continue
        for member in [each for each in vars(one) if not scene.has("{}.{}".format(one.__name__, each))]:
            delattr(one, member)
        setattr(module, one.__name__, one)
    return module


_Severity = enum.IntEnum("Severity", [(one, place) for place, one in enumerate(_SEVERITIES.split())])
