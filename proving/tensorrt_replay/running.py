"""The half of the interface that reads an engine, tells of it, and runs it."""

import ctypes
import json

import numpy as np

from proving.tensorrt_replay.building import MAGIC
from proving.tensorrt_replay.facts import numbers, said
from proving.tensorrt_replay.inspecting import inspected, layers_of
from proving.tensorrt_replay.values import answers, weights_of

_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
_MILLISECONDS = 0.01  # made: so long each node of a layer takes


def running_classes(module, scene):
    """The classes of runtime, engine, inspector and context, and those that a program derives its own from."""
    severity = module.ILogger.Severity

    class IDebugListener:
        pass

    class IOutputAllocator:
        pass

    class IProfiler:
        pass

    class Runtime:
        def __init__(self, logger):
            self._logger = logger
            self.engine_host_code_allowed = False

        def _tell(self, key, **parts):
            found = said(key, scene.version, **parts)
            if found:
                self._logger.log(severity[found[0]], found[1])

        def get_plugin_registry(self):
            return module.IPluginRegistry()

        def get_engine_validity(self, content):
            return None

        def deserialize_cuda_engine(self, content):
            scene.enter("deserialize")
            content = bytes(content)
            if "deserialize" in scene.faults:
                return self._tell(scene.words_of("deserialize", "damaged"), ours="8.9", theirs="8.6")
            if content[:4] != MAGIC[scene.product] or len(content) < 28:
                return self._tell("damaged")
            ours = (numbers(scene.version) + (0, 0, 0))[:4]
            try:
                facts = json.loads(content[28:].decode("utf-8"))
            except ValueError:
                return self._tell("damaged")
            if tuple(content[24:28]) != tuple(ours) and not facts["version_compatible"]:
                return self._tell("library_version", ours=scene.version)
            if facts["version_compatible"] and not self.engine_host_code_allowed:
                return self._tell("host_code")
            for name in scene.data.get("needs_plugins", ()):
                if name not in scene.plugins:
                    return self._tell("no_plugin", name=name)
            return ICudaEngine(facts, self._logger)

    class ICudaEngine:
        def __init__(self, facts, logger):
            self.facts, self.logger = facts, logger
            told = scene.data["network"]
            made = {one["name"]: one for layer in told["layers"] for one in layer["outputs"]}
            self.io = [(dict(one), "INPUT") for one in told["inputs"]]
            self.io += [(dict(made[name]), "OUTPUT") for name in told["outputs"] + facts["outputs"]]
            self.weights = {}  # what it was refitted with
            self._by_name = {one["name"]: (one, mode) for one, mode in self.io}

        num_io_tensors = property(lambda self: len(self.io))
        num_optimization_profiles = property(lambda self: max(len(self.profiles()), 1))

        def profiles(self):
            """The profiles that the engine has; a scene may say that it was built elsewhere with others."""
            return scene.data.get("profiles") or self.facts["profiles"]

        def get_tensor_name(self, index):
            return self.io[index][0]["name"]

        def get_tensor_mode(self, name):
            return module.TensorIOMode[self._by_name[name][1]]

        def get_tensor_dtype(self, name):
            return module.DataType[self._by_name[name][0]["dtype"]]

        def get_tensor_shape(self, name):
            return tuple(self._by_name[name][0]["shape"])

        def get_tensor_format(self, name):
            return module.TensorFormat[scene.data.get("formats", {}).get(name, "LINEAR")]

        def get_tensor_format_desc(self, name):
            return "Row major linear FP32 format (kLINEAR)"

        def get_tensor_location(self, name):
            return module.TensorLocation.DEVICE

        def get_tensor_profile_shape(self, name, profile_index):
            return [tuple(shape) for shape in self.profiles()[profile_index][name]]

        def is_shape_inference_io(self, name):
            return False

        def is_debug_tensor(self, name):
            return name in self.facts["debug"]

        def create_engine_inspector(self):
            return EngineInspector(self)

        def create_execution_context(self):
            return None if "context" in scene.faults else IExecutionContext(self)

        @property
        def refittable(self):
            return "REFIT" in self.facts["flags"]

    class Refitter:
        def __init__(self, engine, logger):
            self.engine, self.logger, self.given = engine, logger, {}

        def get_missing_weights(self):
            return sorted(set(scene.data["network"]["weights"]) - set(self.given))

        def refit_cuda_engine(self):
            scene.enter("refit")
            if "refit" in scene.faults:
                return False
            self.engine.weights = self.given
            return True

    class OnnxParserRefitter:
        num_errors = 0  # made: what is missing is told by the refitter alone

        def __init__(self, refitter, logger):
            self._refitter = refitter

        def refit_from_file(self, path):
            self._refitter.given = weights_of(path, scene.data["network"]["weights"])
            return not self._refitter.get_missing_weights()

    class EngineInspector:
        def __init__(self, engine):
            self._engine = engine

        def get_engine_information(self, form):
            return inspected(scene, self._engine.facts)

    class IExecutionContext:
        def __init__(self, engine):
            self._engine = engine
            self._shapes, self._addresses, self._allocators = {}, {}, {}
            self._profile, self._listener, self._shown = 0, None, False
            self.unfused_tensors_debug_state, self.profiler = False, None

        def _tell(self, key, **parts):
            found = said(key, scene.version, **parts)
            if found:
                self._engine.logger.log(severity[found[0]], found[1])

        def set_optimization_profile_async(self, profile_index, stream_handle):
            self._profile = profile_index
            return profile_index < self._engine.num_optimization_profiles

        def set_input_shape(self, name, shape):
            shape = tuple(shape)
            profiles = self._engine.profiles()
            if profiles and name in profiles[self._profile]:
                low, _, high = profiles[self._profile][name]
                if len(shape) != len(low) or not all(a <= b <= c for a, b, c in zip(low, shape, high)):
                    self._tell(
                        "profile_8",
                        shape=list(shape),
                        index=0,
                        low=low[0],
                        high=high[0],
                        given=shape[0] if shape else 0,
                    )
                    return False
            self._shapes[name] = shape
            return True

        def set_tensor_address(self, name, memory):
            self._addresses[name] = memory
            return True

        def set_output_allocator(self, name, allocator):
            self._allocators[name] = allocator
            return True

        def get_tensor_shape(self, name):
            if name in self._shapes:
                return self._shapes[name]
            told = self._engine.get_tensor_shape(name)
            if -1 not in told or name in scene.data.get("decided_by_values", ()):
                return told
            return self._values()[name].shape

        def set_debug_listener(self, listener):
            self._listener = listener
            return True

        def set_all_tensors_debug_state(self, flag):
            self._shown = flag
            return True

        def _values(self):
            inputs = {}
            for one, mode in self._engine.io:
                if mode == "INPUT":
                    shape = self._shapes.get(one["name"], tuple(one["shape"]))
                    address = self._addresses.get(one["name"])
                    kind = np.dtype(_NUMPY[one["dtype"]])
                    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
                    content = ctypes.string_at(address, count) if address else bytes(count)
                    array = np.frombuffer(content, kind).reshape(shape)
                    inputs[one["name"]] = array.astype(scene.data.get("fed_as", {}).get(one["name"], array.dtype.name))
            by_name = self._engine.facts["debug"] or self._engine.facts["outputs"]
            model = scene.data.get("marked") if by_name else None
            if self._engine.facts["asked"] or self._engine.facts["strong"]:
                model = scene.data.get("honest") or model
            return answers(
                scene.folder,
                model or scene.data["engine"],
                inputs,
                scene.data["network"]["outputs"],
                self._engine.weights,
            )

        def execute_async_v3(self, stream_handle):
            scene.enter("execute")
            if "execute" in scene.faults:
                self._tell(scene.words_of("execute", "out_of_memory"))
                return False
            for one, _ in self._engine.io:
                if one["name"] not in self._addresses and one["name"] not in self._allocators:
                    self._tell("no_address", name=one["name"])
                    return False
            found = self._values()
            self._show(found, stream_handle)
            for one, mode in self._engine.io:
                if mode == "OUTPUT" and one["name"] not in scene.data.get("unwritten", ()):
                    self._write(one, found[scene.data.get("values", {}).get(one["name"], one["name"])])
            if self.profiler is not None:
                for layer in layers_of(scene, self._engine.facts):
                    self.profiler.report_layer_time(layer["name"], _MILLISECONDS * len(layer["nodes"]))
            return True

        def _write(self, one, array):
            content = _bytes(array, one["dtype"])
            name, address = one["name"], self._addresses.get(one["name"])
            if name in self._allocators:
                keeper = self._allocators[name]
                # pyCore.cpp of v8.6.1 calls the one, of v10.0.1 and later the other.
                if scene.product == "rtx" or numbers(scene.version) >= (10,):
                    address = keeper.reallocate_output_async(name, 0, len(content) + 3, 256, 0)
                else:
                    address = keeper.reallocate_output(name, 0, len(content) + 3, 256)
                keeper.notify_shape(name, tuple(array.shape))
            ctypes.memmove(address, content, len(content))

        def _show(self, found, stream):
            if self._listener is None:
                return
            by_name = self._engine.facts["debug"] if self._shown else []
            unfused = self._engine.facts["unfused"] and self.unfused_tensors_debug_state
            for layer in layers_of(scene, self._engine.facts):
                for one in layer["outputs"]:
                    value = one["value"]
                    if (unfused or one["name"] in by_name) and value in found and not one.get("output"):
                        self._hand_over(one["name"], one["dtype"], found[value], stream)

        def _hand_over(self, name, kind, array, stream):
            content = np.frombuffer(_bytes(array, kind), np.uint8)
            self._listener.process_debug_tensor(
                content.ctypes.data, module.TensorLocation.DEVICE, module.DataType[kind], array.shape, name, stream
            )

    return [
        IDebugListener,
        IOutputAllocator,
        IProfiler,
        Runtime,
        ICudaEngine,
        Refitter,
        OnnxParserRefitter,
        EngineInspector,
        IExecutionContext,
    ]


def _bytes(array, kind):
    """The bytes of an array in TensorRT's memory."""
    if kind == "BF16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array).astype(_NUMPY[kind]).tobytes()
