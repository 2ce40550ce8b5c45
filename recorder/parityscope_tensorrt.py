"""Records what a TensorRT engine does on the box where it lives, for `parityscope diagnose` on another machine.

Copy this one file to the box; it needs Python 3.6 or later, numpy and TensorRT's own binding (8.6 and later), and nothing of
Parityscope. Device memory goes through CUDA's runtime library, which TensorRT needs itself.

    python3 parityscope_tensorrt.py --onnx model.onnx --fp16 --inputs samples/ -o recording
    python3 parityscope_tensorrt.py --engine model.plan --inputs samples/ -o recording --tar

Samples are .npz files with arrays by the model's input names (or .npy, where the model has one input). What comes out:

    recording/inputs/NAME.npz, outputs/NAME.npz   what went in and came out of the engine that nobody looks into
    recording/inside/000/NAME.npz                 tensors from inside, with the outputs of the engine that shows them
    recording/inside/000/layers.json, facts.json  the layers of that engine; how it was marked, what it refused, how far off it is
    recording/engine/layers.json, log.txt         the inspector's words and TensorRT's log, as they are
    recording/engine/profile.json, model.plan     seconds of each layer in trtexec's form; the engine
    recording/environment.json, tensorrt.json     versions, GPU, libraries and variables; what was asked for and what came of it

Run the same command again to go on where it was interrupted. Then, on the other machine:

    parityscope diagnose model.onnx --inputs recording/inputs --candidate "saved?path=recording"

How it looks inside, whichever disturbs least: `unfused` shows what lies between two kernels anyway (10.12 and later); `debug`
(10.0) and `outputs` (all) show tensors by name, part by part, and end a fusion at each. How far the outputs of such an engine are
from those of the plain one is measured. A part that the builder refuses is tried by halves.
"""

import argparse
import ctypes
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile

import numpy as np

SCHEMA = "parityscope-tensorrt/1"
_POISON = 0xFF  # what outputs hold before a run: NaN in every float format
_HALVES = 8  # chosen: engines that are built for one part before what is left is given up
_WARM_UP = 3
_PATHS = ("onnx", "engine", "inputs", "plugins", "timingCache")
_FLOATS = ("FLOAT", "HALF", "BF16")
_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING")
_LIBRARIES = {
    "libnvinfer": "tensorrt",
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libcublas": "cublas",
    "libcublasLt": "",
}
_VERSIONED = re.compile(r"/(lib[\w+-]+?)\.so((?:\.\d+)+)$")
_REGISTERED = re.compile(r"Registering tensor: (.+) for ONNX tensor: (.+)$")
_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
    "BF16": "uint16",
    "FP8": "uint8",
    "E8M0": "uint8",
}
_FOUR_BITS = ("FP4", "INT4")
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class RecordingError(ValueError):
    """What cannot be recorded; the message ends with the way to mend it."""

    def __init__(self, problem, fix):
        super().__init__("{}\n  fix: {}".format(problem, fix))


def main(argv=None, trt=None, cudart=None):
    """Records as the command line says; gives the exit status. `trt` and `cudart` take the place of what is installed."""
    asked = _arguments(argv)
    try:
        _record(asked, trt or _binding(asked.product), _Cuda(cudart or _cudart()))
    except RecordingError as error:
        sys.stderr.write("error: {}\n".format(error))
        return 2
    return 0


def _arguments(argv):
    one = argparse.ArgumentParser(prog="parityscope_tensorrt.py", description=__doc__.split("\n")[0])
    one.add_argument("--onnx", help="the model to build; or give --engine")
    one.add_argument("--engine", help="an engine that exists (.plan, .engine)")
    one.add_argument("--inputs", required=True, help="a folder of .npz files, or one file")
    one.add_argument("-o", "--output", default="recording", help="the folder to write (default: recording)")
    one.add_argument("--product", choices=("tensorrt", "rtx"), default="tensorrt")
    for name in ("fp16", "bf16", "int8", "fp8"):
        one.add_argument("--" + name, action="store_true", help="the builder's flag (up to TensorRT 10)")
    one.add_argument("--stronglyTyped", action="store_true", help="the file's types are the engine's")
    one.add_argument("--tf32", action="store_true", help="TF32 on; off unless said (trtexec has it on)")
    one.add_argument("--precisionConstraints", choices=("obey", "prefer", "none"), default="none")
    one.add_argument("--layerPrecisions", default="", help="LAYER:fp32,LAYER:fp16, as trtexec takes it (up to 10)")
    one.add_argument("--minShapes", default="", help="x:1x3x8x8,y:1; default: those of the samples")
    one.add_argument("--optShapes", default="")
    one.add_argument("--maxShapes", default="")
    one.add_argument("--plugins", default="", help="libraries with plug-ins: a.so,b.so")
    one.add_argument("--workspace", type=int, default=0, help="MiB that a kernel may take")
    one.add_argument("--timingCache", default="", help="a file of measured kernels, read and written")
    one.add_argument("--versionCompatible", action="store_true")
    one.add_argument("--watch", choices=("auto", "unfused", "debug", "outputs", "none"), default="auto")
    one.add_argument("--tensors", default="", help="a,b: only these (default: every floating-point tensor)")
    one.add_argument("--part", type=int, default=64, help="tensors that one engine shows by name (default: 64)")
    one.add_argument("--times", type=int, default=20, help="runs that are timed (default: 20; 0: none)")
    one.add_argument("--tar", action="store_true", help="pack the folder as OUTPUT.tar at the end")
    asked = one.parse_args(argv)
    if bool(asked.onnx) == bool(asked.engine):
        one.error("give either --onnx or --engine")
    return asked


def _binding(product):
    name = "tensorrt" if product == "tensorrt" else "tensorrt_rtx"
    try:
        return __import__(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise RecordingError(
            "{} cannot be imported: {}".format(name, str(error).split("\n")[0]),
            "run it with the Python that TensorRT's binding was installed for (on Jetson /usr/bin/python3)",
        ) from error


# --- the whole of it ------------------------------------------------------------------------------------------------------


def _record(asked, trt, cuda):
    samples = _samples(asked.inputs)
    where = os.path.abspath(asked.output)
    for folder in ("inputs", "outputs", "engine", "inside"):
        os.makedirs(os.path.join(where, folder), exist_ok=True)
    told = _begun(asked, trt, where)
    with open(os.path.join(where, "engine", "log.txt"), "a", encoding="utf-8") as lines:
        logger = _logger(trt, lines)
        if hasattr(trt, "init_libnvinfer_plugins"):
            trt.init_libnvinfer_plugins(logger, "")
        _load_plugins(asked.plugins)
        work = _Work(asked, trt, cuda, logger, where, samples)
        plan = _plain(work, told)
        _inside(work, told, plan)
    _write_json(os.path.join(where, "environment.json"), _environment(trt, cuda, asked.plugins))
    told["finished"] = True
    _write_json(os.path.join(where, "tensorrt.json"), told)
    if asked.tar:
        _pack(where)
    colon = ":" + told["precision"] if told["precision"] not in ("", "f32") else ""
    sys.stderr.write(
        "recorded {} samples in {}\ncopy the folder, and judge it there:\n  parityscope diagnose MODEL.onnx --inputs "
        "{}/inputs --candidate 'saved{}?path={}'\n".format(
            len(samples), where, os.path.basename(where), colon, os.path.basename(where)
        )
    )


class _Work(object):
    """What every step needs."""

    def __init__(self, asked, trt, cuda, logger, where, samples):
        self.asked, self.trt, self.cuda, self.logger = asked, trt, cuda, logger
        self.where, self.samples = where, samples
        self.runtime = trt.Runtime(logger)
        if asked.versionCompatible:
            self.runtime.engine_host_code_allowed = True


def _begun(asked, trt, where):
    """The facts of a recording, refused where the folder holds one of another command."""
    keys = sorted(set(vars(asked)) - {"output", "tar", "times"})
    told = {
        "schema": SCHEMA,
        "made_by": getattr(trt, "made_by", "TensorRT"),
        "product": trt.__name__,
        "version": trt.__version__,
        # Of paths the last part: nothing personal.
        "arguments": {key: _said(key, getattr(asked, key)) for key in keys},
        "recorder": {"python": platform.python_version(), "numpy": np.__version__},
        "parts": [],
        "finished": False,
    }
    path = os.path.join(where, "tensorrt.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
        if [before.get(key) for key in ("arguments", "version")] != [told["arguments"], told["version"]]:
            raise RecordingError(
                "{} holds a recording of another command or version".format(where),
                "record into another folder (-o), or delete this one",
            )
        told["parts"] = before.get("parts", [])
        told.update({key: before[key] for key in ("tensors", "milliseconds", "precision", "typing") if key in before})
    _write_json(path, told)
    return told


def _said(key, value):
    return os.path.basename(os.path.normpath(value)) if value and key in _PATHS else value


def _plain(work, told):
    """The engine that nobody looks into: built or read, its outputs on every sample, its layers, its times. Gives its bytes."""
    path = os.path.join(work.where, "engine", "model.plan")
    if work.asked.engine:
        plan = _bytes(work.asked.engine, "give the engine's path: --engine model.plan")
    elif os.path.exists(path):
        plan = _bytes(path, "delete the folder")
    else:
        built = _build(work, None)
        plan = built and built.plan
        if not plan:
            raise RecordingError(
                "TensorRT builds no engine: {}".format(_last_error(work.where)),
                "read engine/log.txt; trtexec --onnx with the same flags should fail likewise",
            )
        _write_bytes(path, plan)
    engine = _engine(work, plan)
    told["tensors"] = _io(engine)
    told["typing"], told["precision"] = _typing(work)
    _write_text(os.path.join(work.where, "engine", "layers.json"), _inspected(work.trt, engine))
    outputs = os.path.join(work.where, "outputs")
    _check_inputs(told["tensors"], work.samples)
    context = _context(engine)
    for name, read in work.samples:
        if os.path.exists(os.path.join(outputs, name + ".npz")):
            continue
        arrays = read(told["tensors"])
        found = _run(work, context, told["tensors"], arrays)
        _write_npz(os.path.join(work.where, "inputs", name + ".npz"), arrays)
        _write_npz(os.path.join(outputs, name + ".npz"), found)
    if work.asked.times and "milliseconds" not in told:
        told["milliseconds"] = _timed(work, engine, told["tensors"])
        _write_json(os.path.join(work.where, "tensorrt.json"), told)
    return plan


def _inside(work, told, plan):
    """Looks into engines of the same model, part by part; what is done already is left as it is."""
    way = _way(work)
    told["way"] = way
    if way == "none":
        return
    if work.asked.engine:
        parts = [()]
    else:
        names = [name for name in work.asked.tensors.split(",") if name]
        parts = [tuple(names)] if way == "unfused" else _parts(work, names)
    for number, names in enumerate(parts):
        if any(part["number"] == number for part in told["parts"]):
            continue
        facts = _look(work, told, number, names, way, plan)
        told["parts"].append(facts)
        _write_json(os.path.join(work.where, "tensorrt.json"), told)


def _look(work, told, number, names, way, plan):
    folder = os.path.join(work.where, "inside", "{:03d}".format(number))
    os.makedirs(folder, exist_ok=True)
    if work.asked.engine:
        built = _Built(plan, {}, {})
        left = ()
    else:
        built, left = _most(work, names, way)
    facts = {
        "number": number,
        "way": way,
        "refused": list(left),
        "names": built.names if built else {},
        "disturbance": None,
    }
    if built is None:
        return facts
    facts["registered"] = built.registered
    engine = _engine(work, built.plan)
    io = _io(engine)
    _write_text(os.path.join(folder, "layers.json"), _inspected(work.trt, engine))
    worst, seen, widened = 0.0, set(), {}
    for name, read in work.samples:
        arrays = read(told["tensors"])
        heard = {}
        context = _context(engine)
        listener = _listen(work, context, heard, widened)
        found = _run(work, context, io, arrays)
        del context, listener
        plain = _read_npz(os.path.join(work.where, "outputs", name + ".npz"))
        worst = max(worst, _distance(plain, found))
        _write_npz(os.path.join(folder, name + ".npz"), dict(heard, **found))
        seen.update(heard)
        seen.update(set(found) - set(plain))
    facts.update(disturbance=worst, seen=sorted(seen), widened_to_float32=widened)
    _write_json(os.path.join(folder, "facts.json"), facts)
    return facts


def _way(work):
    """The way to look inside that was asked for, or the one that disturbs least of those that this version has."""
    network = getattr(work.trt, "INetworkDefinition", None)
    has = ["outputs"]
    if hasattr(network, "mark_debug"):
        has.insert(0, "debug")
    if hasattr(network, "mark_unfused_tensors_as_debug_tensors"):
        has.insert(0, "unfused")
    asked = work.asked.watch
    if work.asked.engine:
        # What an engine shows was decided when it was built: whatever comes is taken.
        return "none" if asked == "none" or "debug" not in has else "unfused"
    if asked in ("auto", "none"):
        return has[0] if asked == "auto" else "none"
    if asked not in has:
        raise RecordingError(
            "this TensorRT ({}) has no --watch {}".format(work.trt.__version__, asked),
            "use one of: {}".format(", ".join(has)),
        )
    return asked


# --- building -------------------------------------------------------------------------------------------------------------


class _Built(object):
    """An engine's bytes, the tensors that it was marked to show (the engine's name -> the model's), and the parser's names."""

    def __init__(self, plan, names, registered):
        self.plan, self.names, self.registered = plan, names, registered


def _build(work, mark):
    """An engine of the model; `mark` is called with the network first. None where the builder refuses."""
    builder, network, parser = _parsed(work)
    registered = _registered(work.where)
    names = mark(network, registered) if mark else {}
    config = _config(work, builder, network)
    plan = builder.build_serialized_network(network, config)
    del parser
    if plan is None:
        return None
    if work.asked.timingCache:
        _write_bytes(work.asked.timingCache, bytes(memoryview(config.get_timing_cache().serialize())))
    return _Built(bytes(memoryview(plan)), names, registered)


def _parsed(work):
    trt, asked = work.trt, work.asked
    flags = trt.NetworkDefinitionCreationFlag
    wanted = 0
    if asked.stronglyTyped:
        if not hasattr(flags, "STRONGLY_TYPED"):
            raise RecordingError("this TensorRT has no strong typing (9 is the first)", "leave --stronglyTyped out")
        wanted |= 1 << int(flags.STRONGLY_TYPED)
    if hasattr(flags, "EXPLICIT_BATCH") and int(trt.__version__.split(".")[0]) < 10:
        wanted |= 1 << int(flags.EXPLICIT_BATCH)
    builder = trt.Builder(work.logger)
    network = builder.create_network(wanted)
    parser = trt.OnnxParser(network, work.logger)
    if not parser.parse(_bytes(asked.onnx, "give the model's path: --onnx model.onnx"), os.path.abspath(asked.onnx)):
        said = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        raise RecordingError(
            "TensorRT's parser refuses the model: {}".format(" ".join((said or ["it does not say why"])[0].split())),
            "on another machine: parityscope network MODEL tells which node, and what can be done",
        )
    return builder, network, parser


def _config(work, builder, network):
    trt, asked = work.trt, work.asked
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    (config.set_flag if asked.tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    for name in ("fp16", "bf16", "int8", "fp8"):
        if getattr(asked, name):
            if not hasattr(trt.BuilderFlag, name.upper()):
                raise RecordingError(
                    "TensorRT {} has no flag {}".format(trt.__version__, name.upper()),
                    "give a file that holds its types (parityscope repair), and leave --{} out".format(name),
                )
            config.set_flag(getattr(trt.BuilderFlag, name.upper()))
    if asked.precisionConstraints != "none":
        config.set_flag(getattr(trt.BuilderFlag, asked.precisionConstraints.upper() + "_PRECISION_CONSTRAINTS"))
    if asked.layerPrecisions:
        _ask_for(trt, network, asked.layerPrecisions)
    if asked.versionCompatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if asked.workspace:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, asked.workspace << 20)
    if asked.timingCache:
        held = b""
        if os.path.exists(asked.timingCache):
            held = _bytes(asked.timingCache, "name a file")
        config.set_timing_cache(config.create_timing_cache(held), False)
    _add_profile(work, builder, config, network)
    return config


def _ask_for(trt, network, text):
    types = {"fp32": "FLOAT", "fp16": "HALF", "bf16": "BF16", "int8": "INT8", "int32": "INT32"}
    wanted = dict(item.rpartition(":")[::2] for item in text.split(","))
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.name in wanted:
            kind = getattr(trt.DataType, types[wanted.pop(layer.name)])
            layer.precision = kind
            for place in range(layer.num_outputs):
                layer.set_output_type(place, kind)
    if wanted:
        raise RecordingError(
            "--layerPrecisions names {!r}, and no layer has that name".format(min(wanted)),
            "take the names of the network's layers from engine/log.txt",
        )


def _add_profile(work, builder, config, network):
    """One optimization profile over the shapes given, else over those of the samples."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    dynamic = [one for one in inputs if -1 in tuple(one.shape)]
    if not dynamic:
        return
    given = [_shapes(getattr(work.asked, flag)) for flag in ("minShapes", "optShapes", "maxShapes")]
    facts = [{"name": one.name, "mode": "input", "dtype": one.dtype.name} for one in inputs]
    seen = [{name: array.shape for name, array in read(facts).items()} for _, read in work.samples]
    profile = builder.create_optimization_profile()
    for one in dynamic:
        shapes = [shapes[one.name] for shapes in seen if one.name in shapes]
        if not shapes:
            raise RecordingError(
                "the samples have no input {!r}".format(one.name), "name their arrays as the model does"
            )
        low, usual, high = tuple(map(min, *shapes, shapes[0])), shapes[0], tuple(map(max, *shapes, shapes[0]))
        profile.set_shape(
            one.name, given[0].get(one.name, low), given[1].get(one.name, usual), given[2].get(one.name, high)
        )
    config.add_optimization_profile(profile)


def _shapes(text):
    found = {}
    for item in text.split(",") if text else ():
        name, _, dims = item.rpartition(":")
        found[name] = tuple(int(dim) for dim in dims.split("x"))
    return found


# --- looking inside -------------------------------------------------------------------------------------------------------


def _parts(work, names):
    """The tensors to show by name, so many to an engine, in the order of the network."""
    _, network, parser = _parsed(work)
    named = {inner: outer for outer, inner in _registered(work.where).items()}
    outputs = {network.get_output(index).name for index in range(network.num_outputs)}
    found = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for place in range(layer.num_outputs):
            tensor = layer.get_output(place)
            plain = tensor.dtype.name in _FLOATS and not getattr(tensor, "is_shape_tensor", False)
            name = named.get(tensor.name, tensor.name)
            if plain and tensor.name not in outputs and layer.type.name != "CONSTANT" and (not names or name in names):
                found.append(name)
    del parser
    size = max(work.asked.part, 1)
    return [tuple(found[start : start + size]) for start in range(0, len(found), size)]


def _most(work, names, way):
    """(the engine that shows most of `names`, those that are left out): what the builder refuses is tried by halves."""
    if way == "unfused":

        def unfused(network, registered):
            network.mark_unfused_tensors_as_debug_tensors()
            return {}

        return _build(work, unfused), ()
    taken, built, waiting, left = [], None, [list(names)], set(names)
    builds = 0
    while waiting and builds < _HALVES:
        group = waiting.pop()
        made = _build(work, _marker(taken + group, way))
        builds += 1
        if made is not None:
            built = made
            taken += group
            left -= set(group)
        elif len(group) > 1:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
    return built, tuple(name for name in names if name in left)


def _marker(names, way):
    def mark(network, registered):
        inner = {registered.get(name, name): name for name in names}
        found = {}
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            for place in range(layer.num_outputs):
                tensor = layer.get_output(place)
                if tensor.name in inner and tensor.name not in found:
                    (network.mark_debug if way == "debug" else network.mark_output)(tensor)
                    found[tensor.name] = inner[tensor.name]
        return found

    return mark


def _listen(work, context, heard, widened):
    """Takes what `context` shows into `heard`; what comes back must outlive the context. None where nothing can be shown."""
    trt = work.trt
    if not hasattr(trt, "IDebugListener") or not hasattr(context, "set_debug_listener"):
        return None

    class Listener(trt.IDebugListener):
        def __init__(self):
            trt.IDebugListener.__init__(self)
            self.turns = {}

        def process_debug_tensor(self, addr, location, type, shape, name, stream):  # noqa: A002 - TensorRT's own name
            dims = tuple(shape)
            nbytes = _nbytes(type.name, dims)
            address = _pointer(addr)
            if location.name == "HOST":
                content = np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)
            else:
                content = work.cuda.fetch(address, nbytes, stream)
            turn = self.turns.get(name, 0)
            self.turns[name] = turn + 1
            heard["{}#{}".format(name, turn) if turn else name] = elements_of(content, type.name, dims)
            if type.name in ("BF16", "FP8", "E8M0", *_FOUR_BITS):
                widened[name] = type.name
            return True

    listener = Listener()
    if context.set_debug_listener(listener):
        context.set_all_tensors_debug_state(True)
        if hasattr(context, "unfused_tensors_debug_state"):
            context.unfused_tensors_debug_state = True
    return listener


def _distance(plain, found):
    """The worst relative L2 distance of any output; what both have as NaN in the same place is equal."""
    worst = 0.0
    for name, array in plain.items():
        if name not in found or array.dtype.kind not in "fiu":
            continue
        if found[name].shape != array.shape:
            return float("inf")
        before, after = array.astype(np.float64), found[name].astype(np.float64)
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        if same.all():
            continue
        with np.errstate(all="ignore"):
            size = float(np.linalg.norm(after[~same] - before[~same]))
            norm = float(np.linalg.norm(before[np.isfinite(before)]))
        worst = max(worst, size / norm if norm and np.isfinite(size) else float("inf"))
    return worst


# --- running --------------------------------------------------------------------------------------------------------------


def _engine(work, plan):
    engine = work.runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise RecordingError(
            "TensorRT refuses the engine: {}".format(_last_error(work.where)),
            "build it again with this TensorRT and on this GPU, or name its plug-ins (--plugins)",
        )
    return engine


def _context(engine):
    context = engine.create_execution_context()
    if context is None:
        raise RecordingError("there is no memory for the engine", "free memory of the GPU, or build for smaller shapes")
    return context


def _io(engine):
    """The inputs and outputs of an engine in its order, as plain data."""
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        mode = engine.get_tensor_mode(name).name.lower()
        one = {
            "name": name,
            "mode": mode,
            "dtype": engine.get_tensor_dtype(name).name,
            "shape": list(engine.get_tensor_shape(name)),
            "format": engine.get_tensor_format_desc(name),
            "linear": engine.get_tensor_format(name).name == "LINEAR",
            "host": engine.get_tensor_location(name).name == "HOST",
        }
        if mode == "input" and -1 in one["shape"] and not engine.is_shape_inference_io(name):
            one["profiles"] = [
                [list(shape) for shape in engine.get_tensor_profile_shape(name, number)]
                for number in range(engine.num_optimization_profiles)
            ]
        found.append(one)
    return found


def _check_inputs(tensors, samples):
    for one in tensors:
        if not one["linear"]:
            raise RecordingError(
                "{!r} has the layout {}, and only C order can be fed and read".format(one["name"], one["format"]),
                "build the engine with linear inputs and outputs",
            )
    wanted = {one["name"] for one in tensors if one["mode"] == "input"}
    for name, read in samples[:1]:
        missing = wanted - set(read(tensors))
        if missing:
            raise RecordingError(
                "sample {} has no input {!r}".format(name, min(missing)),
                "name the arrays as the engine does: {}".format(", ".join(sorted(wanted))),
            )


def _run(work, context, tensors, arrays):
    """The outputs of one run by the engine's names."""
    cuda = work.cuda
    taken, places, kept = [], {}, []
    try:
        _choose_profile(cuda, context, tensors, arrays)
        for one in tensors:
            name = one["name"]
            if one["mode"] == "input":
                array = np.ascontiguousarray(arrays[name])
                if array.dtype.name != _NUMPY.get(one["dtype"]):
                    raise RecordingError(
                        "input {!r} is {}, the engine wants {}".format(name, array.dtype, one["dtype"]),
                        "give it in the type that the engine wants: nothing is cast silently",
                    )
                if not context.set_input_shape(name, array.shape):
                    raise RecordingError(
                        "TensorRT refuses the shape {} of input {!r}: {}".format(
                            list(array.shape), name, _last_error(work.where)
                        ),
                        "build the engine for the samples' shapes (--minShapes --optShapes --maxShapes)",
                    )
                address = array.ctypes.data if one["host"] else cuda.put(array, taken)
                kept.append(array)
                context.set_tensor_address(name, address)
        for one in tensors:
            if one["mode"] != "input":
                places[one["name"]] = _place(work, context, one, taken, kept)
        if not context.execute_async_v3(cuda.stream):
            raise RecordingError(
                "TensorRT fails while it runs: {}".format(_last_error(work.where)), "engine/log.txt has its own words"
            )
        cuda.wait()
        return {name: place() for name, place in places.items()}
    finally:
        for address in taken:
            cuda.free(address)


def _choose_profile(cuda, context, tensors, arrays):
    """Switches to the first profile that covers the sample, where the engine has several."""
    ranges = {one["name"]: one["profiles"] for one in tensors if one.get("profiles")}
    count = max([len(each) for each in ranges.values()] or [1])
    for number in range(count) if count > 1 else ():
        bounds = {name: each[number] for name, each in ranges.items()}
        if all(
            len(low) == arrays[name].ndim and all(a <= b <= c for a, b, c in zip(low, arrays[name].shape, high))
            for name, (low, _, high) in bounds.items()
        ):
            context.set_optimization_profile_async(number, cuda.stream)
            return


def _place(work, context, one, taken, kept):
    """Where an output goes, as a function that reads it after the run."""
    name, kind = one["name"], one["dtype"]
    shape = tuple(context.get_tensor_shape(name))
    if -1 in shape:
        held = _allocator(work, taken)
        kept.append(held)
        context.set_output_allocator(name, held)
        return lambda: elements_of(work.cuda.fetch(held.address, _nbytes(kind, held.shape)), kind, held.shape)
    nbytes = _nbytes(kind, shape)
    if one["host"]:
        array = np.full(max(nbytes, 1), _POISON, np.uint8)
        context.set_tensor_address(name, array.ctypes.data)
        return lambda: elements_of(array[:nbytes], kind, shape)
    address = work.cuda.put(np.full(max(nbytes, 1), _POISON, np.uint8), taken)
    context.set_tensor_address(name, address)
    return lambda: elements_of(work.cuda.fetch(address, nbytes), kind, shape)


def _allocator(work, taken):
    trt = work.trt

    class Allocator(trt.IOutputAllocator):
        def __init__(self):
            trt.IOutputAllocator.__init__(self)
            self.address, self.shape = 0, ()

        def reallocate_output(self, tensor_name, memory, size, alignment):
            self.address = work.cuda.put(np.full(max(size, 1), _POISON, np.uint8), taken)
            return self.address

        def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name, shape):
            self.shape = tuple(shape)

    return Allocator()


def _timed(work, engine, tensors):
    """Milliseconds of whole runs, and of each layer in `engine/profile.json`, on the first sample."""
    arrays = work.samples[0][1](tensors)
    context = _context(engine)
    spent = []
    for number in range(_WARM_UP + work.asked.times):
        start = time.perf_counter()
        _run(work, context, tensors, arrays)
        if number >= _WARM_UP:
            spent.append((time.perf_counter() - start) * 1000)
    if hasattr(work.trt, "IProfiler"):
        layers = {}
        order = []

        class Profiler(work.trt.IProfiler):
            def report_layer_time(self, layer_name, ms):
                if layer_name not in layers:
                    order.append(layer_name)
                layers.setdefault(layer_name, []).append(ms)

        profiler = Profiler()
        context.profiler = profiler
        for _ in range(work.asked.times):
            _run(work, context, tensors, arrays)
        # The form of `trtexec --exportProfile`.
        whole = sum(sum(each) for each in layers.values()) or 1.0
        document = [{"count": work.asked.times}]
        for name in order:
            each = layers[name]
            document.append(
                {
                    "name": name,
                    "timeMs": sum(each),
                    "averageMs": sum(each) / len(each),
                    "medianMs": float(np.median(each)),
                    "percentage": 100 * sum(each) / whole,
                }
            )
        if order:
            _write_json(os.path.join(work.where, "engine", "profile.json"), document)
        del context, profiler
    return spent


class _Cuda(object):
    """Device memory and one stream, through CUDA's runtime library."""

    def __init__(self, library):
        self._library = library
        stream = ctypes.c_void_p()
        self._call("cudaStreamCreate", ctypes.byref(stream))
        self.stream = stream.value or 0

    def put(self, array, taken):
        """The address of a copy of `array` on the device; it is appended to `taken`."""
        address = ctypes.c_void_p()
        nbytes = array.nbytes
        self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        taken.append(address.value)
        if nbytes:
            self._copy(address.value, array.ctypes.data, nbytes, 1)
        return address.value

    def fetch(self, address, nbytes, stream=None):
        """The bytes at `address`, uint8, when the stream's work is done."""
        self.wait(stream)
        held = np.empty(nbytes, np.uint8)
        if nbytes:
            self._copy(held.ctypes.data, address, nbytes, 2)
        return held

    def wait(self, stream=None):
        """Until the work of a stream (ours, unless another is given) is done."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(self.stream if stream is None else stream))

    def free(self, address):
        """Gives memory back."""
        self._call("cudaFree", ctypes.c_void_p(address))

    def versions(self):
        """CUDA's versions of the runtime library and of the driver, as text."""
        found = {}
        for key, name in (("cuda", "cudaRuntimeGetVersion"), ("cuda driver", "cudaDriverGetVersion")):
            number = ctypes.c_int()
            if getattr(self._library, name)(ctypes.byref(number)) == 0:
                found[key] = "{}.{}".format(number.value // 1000, number.value % 1000 // 10)
        return found

    def _copy(self, target, source, nbytes, kind):
        self._call(
            "cudaMemcpy", ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes), ctypes.c_int(kind)
        )

    def _call(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status == 2:
            raise RecordingError(
                "the GPU has no memory left", "close other programs, or record fewer tensors (--part 8)"
            )
        if status:
            raise RecordingError("{} fails with CUDA's error {}".format(name, status), "look at the driver: nvidia-smi")


def _cudart():
    tried = ["libcudart.so"] + ["libcudart.so.{}".format(number) for number in ("13", "12", "11.0", "10.2")]
    tried += sorted(glob.glob("/usr/local/cuda*/lib64/libcudart.so*"))
    for package in ("cuda_runtime", "cu13"):
        for folder in sys.path:
            tried += sorted(glob.glob(os.path.join(folder, "nvidia", package, "lib", "libcudart.so*")))
    for name in tried:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RecordingError("CUDA's runtime library (libcudart.so) is not found", "put its folder on LD_LIBRARY_PATH")


# --- bytes ----------------------------------------------------------------------------------------------------------------


def _nbytes(kind, shape):
    count = 1
    for size in shape:
        count *= size
    if kind in _FOUR_BITS:
        return (count + 1) // 2
    if kind not in _NUMPY:
        raise RecordingError("TensorRT's type {} is not known here".format(kind), "take a newer recorder")
    return count * np.dtype(_NUMPY[kind]).itemsize


def elements_of(content, kind, shape):
    """The elements of a tensor of TensorRT's type `kind`; what numpy lacks becomes float32, which holds it exactly."""
    if kind in _FOUR_BITS:
        count = 1
        for size in shape:
            count *= size
        four = np.stack([content & 15, content >> 4], axis=-1).reshape(-1)[:count]
        if kind == "INT4":
            return ((four.astype(np.int8) ^ 8) - 8).astype(np.int8).reshape(shape)
        sign = np.where(four & 8, np.float32(-1), np.float32(1))
        return (np.array(_FP4, np.float32)[four & 7] * sign).reshape(shape)
    held = content.view(_NUMPY[kind]).reshape(shape)
    if kind == "BF16":
        return (held.astype(np.uint32) << 16).view(np.float32)
    if kind == "FP8":
        return _fp8(np.arange(256))[held]
    if kind == "E8M0":
        table = np.ldexp(1.0, np.minimum(np.arange(256), 254) - 127).astype(np.float32)
        table[255] = np.nan
        return table[held]
    return held


def _fp8(bits):
    """float8 e4m3fn as float32: a sign, four bits of exponent (bias 7), three of significand; all ones are NaN."""
    exponent, fraction = (bits >> 3) & 15, (bits & 7) / 8.0
    size = np.where(exponent == 0, np.ldexp(fraction, -6), np.ldexp(1 + fraction, exponent - 7))
    size = np.where((bits & 127) == 127, np.nan, size)
    return (size * np.where(bits & 128, -1.0, 1.0)).astype(np.float32)


def _pointer(address):
    """An address that the binding gives: a number, or a capsule around it (11 and RTX)."""
    if isinstance(address, int):
        return address
    unpack, name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_GetName
    unpack.restype, unpack.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return unpack(address, name(address)) or 0


# --- files ----------------------------------------------------------------------------------------------------------------


def _samples(path):
    """(name, function that reads it for an engine's inputs) of each sample, in the order of the names."""
    files = [path]
    if os.path.isdir(path):
        files = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith((".npz", ".npy")))
    files = [name for name in files if os.path.isfile(name)]
    if not files:
        raise RecordingError("there are no samples at {}".format(path), "give .npz files with arrays by input name")
    return [(os.path.splitext(os.path.basename(name))[0], _reader(name)) for name in files]


def _reader(path):
    def read(tensors):
        wanted = {one["name"]: one["dtype"] for one in tensors if one["mode"] == "input"}
        if path.endswith(".npy"):
            arrays = {name: np.load(path, allow_pickle=False) for name in list(wanted)[:1]}
        else:
            arrays = {name: array for name, array in _read_npz(path).items() if name in wanted}
        for name, array in arrays.items():
            # TensorRT before 10 makes int32 of the int64 that a file declares.
            if (array.dtype.name, wanted[name]) == ("int64", "INT32"):
                small = array.astype(np.int32)
                if not (small == array).all():
                    raise RecordingError(
                        "input {!r} has numbers beyond int32, which the engine wants".format(name),
                        "use TensorRT 10 or newer, which keeps int64, or smaller numbers",
                    )
                arrays[name] = small
        return arrays

    return read


def _read_npz(path):
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _write_npz(path, arrays):
    temporary = path + ".part"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # numpy.savez takes names as arguments and cannot store a tensor called "file".
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    os.replace(temporary, path)


def _write_json(path, held):
    _write_text(path, json.dumps(held, indent=1, ensure_ascii=False, sort_keys=False) + "\n")


def _write_text(path, text):
    _write_bytes(path, text.encode("utf-8"))


def _write_bytes(path, content):
    temporary = path + ".part"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def _bytes(path, fix):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise RecordingError("{} cannot be read: {}".format(path, error.strerror), fix) from error


def _pack(where):
    with tarfile.open(where + ".tar.part", "w") as archive:
        archive.add(where, arcname=os.path.basename(where))
    os.replace(where + ".tar.part", where + ".tar")


# --- what TensorRT and the box say ------------------------------------------------------------------------------------------


def _logger(trt, lines):
    class Logger(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)

        def log(self, severity, msg):
            letter = {"VERBOSE": "V", "INFO": "I", "WARNING": "W"}.get(severity.name, "E")
            lines.write("[TRT] [{}] {}\n".format(letter, msg))
            lines.flush()

    return Logger()


def _log(where):
    with open(os.path.join(where, "engine", "log.txt"), encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _last_error(where):
    errors = [line.partition("[E] ")[2] for line in _log(where) if "[E] " in line]
    return errors[-1] if errors else "it does not say why"


def _registered(where):
    """The model's name of a tensor -> the name that the parser took for it, where that is another."""
    found = {}
    for line in _log(where):
        match = _REGISTERED.search(line)
        if match and match.group(1) != match.group(2):
            found.setdefault(match.group(2), match.group(1))
    return found


def _inspected(trt, engine):
    return engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)


def _typing(work):
    """(typing, precision) that was asked for, in Parityscope's words; an engine that exists tells neither."""
    asked = work.asked
    if asked.engine:
        return "", ""
    major = int(work.trt.__version__.split(".")[0])
    if asked.stronglyTyped or work.trt.__name__ == "tensorrt_rtx" or major >= 11:
        return "strong", ""
    words = (("fp8", "f8e4m3"), ("int8", "int8"), ("bf16", "bf16"), ("fp16", "f16"))
    return "weak", next((ours for name, ours in words if getattr(asked, name)), "f32")


def _load_plugins(text):
    for path in text.split(",") if text else ():
        try:
            ctypes.CDLL(os.path.abspath(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise RecordingError("{} cannot be loaded: {}".format(path, error), "look at what it needs: ldd") from error


def _environment(trt, cuda, plugins):
    """The facts of this box under the keys that `parityscope doctor` has; no names of users, hosts or paths."""
    found = {"machine": platform.machine(), "tensorrt": trt.__version__, "python": platform.python_version()}
    found.update({name: os.environ.get(name, "not set") for name in _VARIABLES})
    for library, version in _loaded().items():
        found["loaded " + library] = version
        if _LIBRARIES[library]:
            found.setdefault(_LIBRARIES[library], version)
    for key, version in cuda.versions().items():
        found.setdefault(key, version)
    found.update(_gpu())
    found["plug-ins"] = ", ".join(
        "{} {}".format(os.path.basename(path), hashlib.sha256(_bytes(path, "name a file")).hexdigest()[:12])
        for path in plugins.split(",")
        if path
    )
    return {key: value for key, value in found.items() if value}


def _loaded():
    found = {}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            paths = {line.split(None, 5)[-1].strip() for line in file if ".so" in line}
    except OSError:
        return found
    for path in sorted(paths):
        match = _VERSIONED.search(os.path.realpath(path))
        if match and match.group(1) in _LIBRARIES:
            found[match.group(1)] = match.group(2).lstrip(".")
    return found


def _gpu():
    """What nvidia-smi tells of the GPU (its clocks, persistence mode and MIG too); of a Jetson, what its own files tell."""
    fields = ("name", "driver_version", "compute_cap", "clocks.sm", "persistence_mode", "mig.mode.current")
    keys = ("gpu", "driver", "compute capability", "gpu clock", "persistence mode", "mig")
    found = {}
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"]
        try:
            said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
            first = said.stdout.decode("utf-8", "replace").split("\n")[0].split(",")
        except (OSError, subprocess.SubprocessError):
            first = []
        if len(first) == len(keys):
            found = {key: value.strip() for key, value in zip(keys, first) if not value.strip().startswith("[")}
    for key, path in (("gpu", "/proc/device-tree/model"), ("jetson", "/etc/nv_tegra_release")):
        if key not in found and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found[key] = file.readline().strip("\0\n# ")
    return found


if __name__ == "__main__":
    sys.exit(main())
