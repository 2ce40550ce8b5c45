"""The page of each code that a log can give, for `parityscope explain`: made of the meanings, which are its only source."""

from __future__ import annotations

from parityscope.logs.meanings import MEANINGS

# Codes that are put together from several lines, or from two logs, in the words that their findings use.
_COMPOSED = {
    "RNG201": (
        "Weights overflow: the builder set elements beyond the format's range to its largest finite number.",
        (
            "harmful: the engine computes with other weights than the model, and every layer behind inherits the "
            'error. The line after it ("List of affected weights", in verbose logs) names them.'
        ),
        "fold or rescale these weights in the ONNX graph, or keep their nodes in FP32 (parityscope repair).",
    ),
    "RNG202": (
        "Weights underflow: elements smaller than the format's smallest number were set to it.",
        (
            "rarely harmful: absolute changes of at most 6e-8 in FP16, which matter only where such a weight is "
            "multiplied by large values."
        ),
    ),
    "RNG203": (
        "Weights are subnormal: elements keep fewer digits.",
        "harmless with few exceptions: the numbers are below 6.1e-5 in FP16 and rarely decide anything.",
    ),
    "ACC202": (
        "TF32 is on in one of two builds.",
        "their products differ by about 3e-4 for this reason alone.",
        "build both with TF32 off (trtexec --noTF32).",
    ),
    "ACC203": (
        "Layers run kernels whose names say that they round to TF32.",
        "each such product has a relative error of about 3e-4 where FP32 has 3e-7.",
        "build with TF32 off (trtexec --noTF32) and compare again.",
    ),
    "ACC204": (
        "Layers run kernels whose names say that they sum in FP16.",
        "long sums lose digits and overflow at 65504, also where inputs and result fit.",
        "keep these nodes in FP32 (parityscope repair), or build with a version that sums them in FP32.",
    ),
    "BND202": (
        "Inputs are in another order: in two engines, or in the engine and the file.",
        "harmful for a program that binds by position: inputs of one type and shape are exchanged and nothing fails.",
        "bind by name.",
    ),
    "BND203": (
        "Inputs of one type and shape: a program that binds by position can swap them and nothing fails.",
        "bind by name, or feed them in the order that the finding gives.",
    ),
    "CST204": (
        "A layer was asked for a type and its fused layer writes another.",
        "the request was lost inside of a fused layer.",
        "write the precision into the ONNX graph: parityscope repair.",
    ),
    "CST205": (
        "Nodes write another type in one of two engines.",
        "what a conversion is meant to do; a node that was to stay in FP32 and is among them did not.",
    ),
    "RUN202": (
        "A run of trtexec or Polygraphy ended with FAILED, or an engine build has errors and no end.",
        (
            "nothing was built or run, or (Polygraphy) outputs differ by more than was allowed. A cause where no other line "
            "explains it."
        ),
        (
            "read the errors that the finding quotes; parityscope network names the nodes that TensorRT refuses, "
            "without a GPU."
        ),
    ),
    "EXP201": (
        "TensorRT refuses a node, or the whole network.",
        "nothing is built.",
        "export with operators that it knows, or load the plug-in; parityscope network names every node.",
    ),
}


def log_codes() -> tuple[str, ...]:
    """Every code that a finding of a log or of a network view can have, in order."""
    return tuple(sorted({*_COMPOSED, *(meaning.code for meaning in MEANINGS if meaning.code)}))


def log_page(code: str) -> str:
    """The page of a code; KeyError if there is none."""
    if code in _COMPOSED:
        title, harm, *fixes = _COMPOSED[code]
        return _make_page(title, harm, "several lines of a log together, or two logs", "".join(fixes), "")
    told = [meaning for meaning in MEANINGS if meaning.code == code]
    if not told:
        raise KeyError(code)
    return "\n\n".join(
        _make_page(
            f"{one.name}: {one.means}.",
            f"{one.effect}: {one.why}.",
            f'a line of a log with "{one.hint}"',
            f"{one.fix}." * bool(one.fix) + f"\n\n    {one.command}" * bool(one.command),
            one.source,
        )
        for one in told
    )


def _make_page(title: str, harm: str, example: str, fix: str, source: str) -> str:
    """The parts that every page has, under the names that they have on the pages of checks and rules."""
    return "\n\n".join(
        (
            title,
            f"What goes wrong: {harm}",
            f"How it shows: {example}.",
            "How we test for it: the line is recognised by its words, and what it names is kept.",
            f"How to repair: {fix or 'nothing has to be done about the line itself.'}",
            f"Sources: {source or 'the words of the logs themselves, TensorRT 8 to 10 and Polygraphy.'}",
        )
    )
