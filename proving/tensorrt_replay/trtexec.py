"""Whether trtexec of a version takes a command line: its documented options, and the grammar of their values.

Sources: samples/common/sampleOptions.cpp of each release from 8.6.1 to 11.1 (`python -m proving.tensorrt_replay.stubs CLONE`
holds versions of options against them), and for patterns of names setLayerPrecisions in sampleEngines.cpp. Only the options that
this project's lines use are listed: an option that is not here is refused, so that a new one is looked up first.
"""

import re
import shlex

from proving.tensorrt_replay.facts import numbers

_FILE = r".+"
_NAME = r"[^,]+"
_SHAPE = r"(?:\d+(?:x\d+)*|scalar|)"
_SHAPES = r"{name}:{shape}(?:,{name}:{shape})*".format(name=_NAME, shape=_SHAPE)
_TYPES_8, _TYPES = r"(?:fp32|fp16|int32|int8)", r"(?:fp32|fp16|bf16|int32|int8)"
_IO = r"(?:fp32|fp16|bf16|int32|int64|int8|uint8|bool|fp8)"
_FORMAT = r"(?:chw|chw2|chw4|hwc8|chw16|chw32|dhwc8|cdhw32|hwc|dla_linear|dla_hwc4)"
_FLAG = None


def _listed(item):
    return r"{0}(?:,{0})*".format(item)


# (option, first version, last version, grammar of its value; None where it takes none)
OPTIONS = (
    ("--onnx", "8.6", "", _FILE),
    ("--minShapes", "8.6", "", _SHAPES),
    ("--optShapes", "8.6", "", _SHAPES),
    ("--maxShapes", "8.6", "", _SHAPES),
    ("--shapes", "8.6", "", _SHAPES),
    ("--inputIOFormats", "8.6", "", _listed(_IO + ":" + _FORMAT + r"(?:\+" + _FORMAT + ")*")),
    ("--outputIOFormats", "8.6", "", _listed(_IO + ":" + _FORMAT + r"(?:\+" + _FORMAT + ")*")),
    ("--memPoolSize", "8.6", "", _listed(r"(?:workspace|dlaSRAM|dlaLocalDRAM|dlaGlobalDRAM):[\d.]+[BGKM]?")),
    ("--profilingVerbosity", "8.6", "", r"(?:layer_names_only|detailed|none)"),
    ("--versionCompatible", "8.6", "", _FLAG),
    ("--noTF32", "8.6", "", _FLAG),
    ("--fp16", "8.6", "10", _FLAG),
    ("--bf16", "9.0", "10", _FLAG),
    ("--int8", "8.6", "10", _FLAG),
    ("--fp8", "8.6", "10", _FLAG),
    ("--best", "8.6", "10", _FLAG),
    ("--stronglyTyped", "9.0", "", _FLAG),
    ("--precisionConstraints", "8.6", "10", r"(?:none|obey|prefer)"),
    ("--layerPrecisions", "8.6", "8", _listed(_NAME + ":" + _TYPES_8)),
    ("--layerPrecisions", "9.0", "10", _listed(_NAME + ":" + _TYPES)),
    ("--layerOutputTypes", "8.6", "8", _listed(_NAME + ":" + _TYPES_8 + r"(?:\+" + _TYPES_8 + ")*")),
    ("--layerOutputTypes", "9.0", "10", _listed(_NAME + ":" + _TYPES + r"(?:\+" + _TYPES + ")*")),
    ("--calib", "8.6", "10", _FILE),
    ("--saveEngine", "8.6", "", _FILE),
    ("--loadEngine", "8.6", "", _FILE),
    ("--getPlanVersionOnly", "9.0", "", _FLAG),
    (
        "--tacticSources",
        "8.6",
        "10",
        _listed(r"[+-](?:CUBLAS|CUBLAS_LT|CUDNN|EDGE_MASK_CONVOLUTIONS|JIT_CONVOLUTIONS)"),
    ),
    ("--tacticSources", "11.0", "", _listed(r"[+-](?:EDGE_MASK_CONVOLUTIONS|JIT_CONVOLUTIONS)")),
    ("--refit", "8.6", "", _FLAG),
    ("--timingCacheFile", "8.6", "", _FILE),
    ("--hardwareCompatibilityLevel", "8.6", "", r"(?:none|ampere\+)"),
    ("--markDebug", "10.0", "", _listed(_NAME)),
    ("--saveDebugTensors", "10.0", "", _listed(_NAME + ":" + _NAME)),
    ("--markUnfusedTensorsAsDebugTensors", "10.12", "", _FLAG),
    ("--saveAllDebugTensors", "10.12", "", _listed(r"(?:summary|numpy|string|raw)")),
    ("--loadInputs", "8.6", "", _listed(_NAME + ":" + _NAME)),
    ("--iterations", "8.6", "", r"\d+"),
    ("--warmUp", "8.6", "", r"\d+"),
    ("--duration", "8.6", "", r"-?\d+"),
    ("--separateProfileRun", "8.6", "", _FLAG),
    ("--useProfile", "9.0", "", r"\d+"),
    ("--verbose", "8.6", "", _FLAG),
    ("--dumpOutput", "8.6", "", _FLAG),
    ("--dumpRawBindingsToFile", "8.6", "", _FLAG),
    ("--dumpProfile", "8.6", "", _FLAG),
    ("--dumpLayerInfo", "8.6", "", _FLAG),
    ("--exportTimes", "8.6", "", _FILE),
    ("--exportOutput", "8.6", "", _FILE),
    ("--exportProfile", "8.6", "", _FILE),
    ("--exportLayerInfo", "8.6", "", _FILE),
    ("--device", "8.6", "", r"\d+"),
    ("--staticPlugins", "8.6", "", _FILE),
)


def refusals(line, version):
    """Why trtexec of `version` refuses a command line (or warns that it has no effect); nothing where it takes it.

    `$(cat FILE)` is the shell's, and stands for more options.
    """
    words = shlex.split(re.sub(r"\$\(cat [^)]*\)", "", line.partition(">")[0].partition(";")[0]))
    found = [] if words and words[0] == "trtexec" else ["it is no line of trtexec"]
    given = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        given.setdefault(name, []).append(value)
        problem = _refused(name, equals, value, version)
        if problem:
            found.append(problem)
    if not {"--onnx", "--loadEngine"} & set(given):
        found.append("it has no model and no engine")
    layers = {"--layerPrecisions", "--layerOutputTypes"} & set(given)
    obeyed = given.get("--precisionConstraints", ["none"])[-1] != "none"
    if layers and not obeyed:
        found.append("precisions of layers have no effect without --precisionConstraints")
    if obeyed and not layers:
        found.append("--precisionConstraints without precisions of layers only warns")
    shapes = {"--minShapes", "--optShapes", "--maxShapes"} & set(given)
    if shapes and shapes != {"--optShapes"} and len(shapes) < 3:
        found.append("either --optShapes alone, or all three of min, opt and max")
    return found


def _refused(name, equals, value, version):
    known = [one for one in OPTIONS if one[0] == name]
    fitting = [one for one in known if _spans(one, version)]
    if not fitting:
        return "{} has no {}".format(version, name) if known else "{} is not known here".format(name)
    grammar = fitting[0][3]
    if grammar is None:
        return "{} takes no value".format(name) if equals else ""
    if not re.fullmatch(grammar, value):
        return "{} does not take {!r}".format(name, value)
    if name in ("--layerPrecisions", "--layerOutputTypes"):
        named = [item.rpartition(":")[0] for item in value.split(",")]
        if any(one.count("*") > 1 for one in named):
            return "{} takes at most one * in a name".format(name)
        if numbers(version) < (9,) and any("*" in one and one != "*" for one in named):
            return "{} of {} takes * alone, and no patterns".format(name, version)
    return ""


def is_known(name, version):
    """Whether trtexec of a version has an option."""
    return any(one[0] == name and _spans(one, version) for one in OPTIONS)


def _spans(option, version):
    ours, last = numbers(version), numbers(option[2] or "99")
    return ours >= numbers(option[1]) and ours[: len(last)] <= last


def trtexec_lines(text):
    """Every line of trtexec in a text, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip() for line in re.findall(r"(?m)^\s*(trtexec .*)$", joined)]
