"""The half of the interface that parses and builds."""

import json
import os

from proving.tensorrt_replay.facts import numbers, said

MAGIC = {"tensorrt": b"ftrt", "rtx": b"vtrt"}
_VERBOSITY = {"V": "VERBOSE", "I": "INFO", "W": "WARNING", "E": "ERROR"}


def plan_of(scene, facts):
    """The bytes of an engine: TensorRT's header (product, length, version), then our own JSON."""
    body = json.dumps(facts).encode("utf-8")
    version = bytes(bytearray((numbers(scene.version) + (0, 0, 0))[:4]))
    head = MAGIC[scene.product] + bytes(12) + (28 + len(body)).to_bytes(8, "little") + version
    return head + body


def building_classes(module, scene):
    """The classes of parser, network, builder and configuration."""
    severity = module.ILogger.Severity

    def tell(logger, key, **parts):
        found = said(key, scene.version, **parts)
        if found:
            logger.log(severity[found[0]], found[1])

    class ITensor:
        def __init__(self, told):
            self.name, self.shape = told["name"], tuple(told["shape"])
            self.dtype = module.DataType[told["dtype"]]
            self.is_shape_tensor = bool(told.get("shape_tensor"))

    class ILayer:
        def __init__(self, told, network):
            self._told, self._network = told, network
            self.name, self.metadata = told["name"], told["metadata"]
            self.type = module.LayerType[told["type"]]
            self.num_inputs, self.num_outputs = len(told["inputs"]), len(told["outputs"])

        def get_input(self, index):
            return self._network.tensors.get(self._told["inputs"][index])

        def get_output(self, index):
            return self._network.tensors[self._told["outputs"][index]["name"]]

        @property
        def precision(self):
            return self._network.asked.get(self.name)

        @precision.setter
        def precision(self, kind):
            self._network.asked[self.name] = kind.name

        def set_output_type(self, index, dtype):
            self._network.asked[self.name] = dtype.name

    class INetworkDefinition:
        def __init__(self, flags):
            self.flags, self.tensors, self.layers, self.inputs, self.outputs = flags, {}, [], [], []
            self.asked, self.debug, self.extra, self.unfused = {}, [], [], False

        def read(self, told):
            for one in told["inputs"]:
                self.tensors[one["name"]] = ITensor(one)
                self.inputs.append(self.tensors[one["name"]])
            for layer in told["layers"]:
                for one in layer["outputs"]:
                    self.tensors[one["name"]] = ITensor(one)
                self.layers.append(ILayer(layer, self))
            self.outputs = [self.tensors[name] for name in told["outputs"]]

        num_inputs = property(lambda self: len(self.inputs))
        num_outputs = property(lambda self: len(self.outputs))
        num_layers = property(lambda self: len(self.layers))

        def get_input(self, index):
            return self.inputs[index]

        def get_output(self, index):
            return self.outputs[index]

        def get_layer(self, index):
            return self.layers[index]

        def mark_output(self, tensor):
            self.outputs.append(tensor)
            self.extra.append(tensor.name)

        def mark_debug(self, tensor):
            self.debug.append(tensor.name)
            return True

        def mark_unfused_tensors_as_debug_tensors(self):
            self.unfused = True
            return True

    class ParserError:
        def __init__(self, told):
            self._told = told

        def desc(self):
            return self._told["reason"]

        def node(self):
            return self._told["node"]

        def node_name(self):
            return self._told["name"]

        def node_operator(self):
            return self._told["operator"]

    class OnnxParser:
        def __init__(self, network, logger):
            self._network, self._logger, self._errors = network, logger, []

        num_errors = property(lambda self: len(self._errors))

        def get_error(self, index):
            return self._errors[index]

        def parse(self, content, path=None):
            scene.enter("parse")
            told = scene.data["network"]
            missing = [name for name in told["outputs"] if name.encode("utf-8") not in bytes(content)]
            if missing:
                raise AssertionError("the scene is of another model: it has no output {}".format(missing[0]))
            for level, text in scene.data.get("parser_log", ()):
                self._logger.log(severity[_VERBOSITY[level]], text)
            for name in scene.data.get("needs_plugins", ()):
                if name not in scene.plugins:
                    tell(self._logger, "no_plugin", name=name)
                    self._errors.append(
                        ParserError({"reason": "no plug-in " + name, "node": 0, "name": name, "operator": name})
                    )
            if "parse" in scene.faults:
                self._errors.append(ParserError(scene.faults["parse"]))
            if self._errors:
                return False
            if scene.data.get("int64_weights"):
                tell(self._logger, "weak_int64")
            for name, taken in scene.data.get("renamed", {}).items():
                tell(self._logger, "registering", taken=taken, name=name)
            self._network.read(told)
            return True

    class IOptimizationProfile:
        def __init__(self):
            self.shapes = {}

        def set_shape(self, name, smallest, usual, largest):
            self.shapes[name] = [list(smallest), list(usual), list(largest)]

    class ITimingCache:
        def __init__(self, content):
            self.content = content

        def serialize(self):
            return b"timings:" + self.content

    class IBuilderConfig:
        def __init__(self, logger):
            self._logger, self.flags, self.profiles, self._cache = logger, set(), [], None
            self.profiling_verbosity = module.ProfilingVerbosity.LAYER_NAMES_ONLY
            self.hardware_compatibility_level, self.builder_optimization_level = None, 3
            self.default_device_type, self.DLA_core = module.DeviceType.GPU, -1
            self.pools, self.sources = {}, 31
            self.flags.add("TF32")  # on unless it is switched off, as in every version
            if scene.has("IBuilderConfig.build_route"):
                self.all_build_routes, self.build_route = json.dumps(scene.data.get("build_routes", "")), ""

        def set_flag(self, flag):
            self.flags.add(flag.name)

        def clear_flag(self, flag):
            self.flags.discard(flag.name)

        def add_optimization_profile(self, profile):
            self.profiles.append(profile.shapes)
            return len(self.profiles) - 1

        def set_memory_pool_limit(self, pool, pool_size):
            self.pools[pool.name] = pool_size

        def get_tactic_sources(self):
            return self.sources

        def set_tactic_sources(self, sources):
            self.sources = sources
            return True

        def told(self):
            """What the builder was told of the box, as far as it is not TensorRT's default."""
            level, hardware = self.builder_optimization_level, self.hardware_compatibility_level
            found = {
                "pools": self.pools,
                "route": getattr(self, "build_route", ""),
                "level": level if level != 3 else "",
            }
            found["hardware"] = hardware.name if hardware is not None else ""
            found["dla"] = self.DLA_core if self.default_device_type.name == "DLA" else ""
            if hasattr(module, "TacticSource"):
                found["sources"] = [one.name for one in module.TacticSource if self.sources >> int(one) & 1]
            return {name: value for name, value in found.items() if value != ""}

        def create_timing_cache(self, content):
            if content and not bytes(content).startswith(b"timings:"):
                tell(self._logger, "timing_cache")
                return ITimingCache(b"")
            return ITimingCache(bytes(content)[8:])

        def set_timing_cache(self, cache, ignore_mismatch):
            self._cache = cache
            return True

        def get_timing_cache(self):
            if self._cache is not None and not self._cache.content:
                self._cache.content = b"measured"
            return self._cache

    class IPluginCreator:
        plugin_namespace, plugin_version = "", "1"

        def __init__(self, name):
            self.name = name

    class IPluginRegistry:
        all_creators = property(lambda self: [IPluginCreator(name) for name in sorted(scene.plugins)])
        plugin_creator_list = all_creators

        def load_library(self, path):
            scene.plugins.update(scene.data.get("libraries", {}).get(os.path.basename(path), ()))
            return object() if os.path.basename(path) in scene.data.get("libraries", {}) else None

    class Builder:
        def __init__(self, logger):
            self._logger = logger

        def create_network(self, flags):
            return INetworkDefinition(flags)

        def create_builder_config(self):
            return IBuilderConfig(self._logger)

        def create_optimization_profile(self):
            return IOptimizationProfile()

        def get_plugin_registry(self):
            return IPluginRegistry()

        def build_serialized_network(self, network, config):
            marks = network.debug + network.extra
            scene.enter("build")
            if marks:
                scene.enter("build by name")
            if network.unfused:
                scene.enter("build unfused")
            for name in marks:
                scene.enter("build showing " + name)
            for level, text in scene.data.get("builder_log", ()):
                self._logger.log(severity[_VERBOSITY[level]], text)
            if "build" in scene.faults:
                tell(self._logger, scene.words_of("build", "build_failed"), name=scene.faults["build"])
                return None
            if set(marks) & set(scene.data.get("refused_marks", ())) or (
                network.unfused and scene.faults.get("unfused")
            ):
                tell(self._logger, "bool_output")
                return None
            strong = hasattr(module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED") and (
                network.flags >> int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED) & 1
            )
            if strong:
                tell(self._logger, "strongly_typed")
            if network.asked and not config.flags & {"OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"}:
                network.asked.clear()  # trtexec's help: without the constraint the precisions have no effect
            return plan_of(
                scene,
                {
                    "debug": network.debug,
                    "outputs": network.extra,
                    "unfused": network.unfused,
                    "profiles": config.profiles,
                    "flags": sorted(config.flags),
                    "asked": network.asked,
                    "strong": bool(strong),
                    "detailed": config.profiling_verbosity.name == "DETAILED",
                    "version_compatible": "VERSION_COMPATIBLE" in config.flags,
                    "told": config.told(),
                },
            )

    return [
        ITensor,
        ILayer,
        INetworkDefinition,
        ParserError,
        OnnxParser,
        IOptimizationProfile,
        ITimingCache,
        IBuilderConfig,
        IPluginRegistry,
        Builder,
    ]
