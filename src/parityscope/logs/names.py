"""Which ONNX nodes a TensorRT layer stands for: from its metadata, or else from its name.

Metadata (8.6 and newer) is a list of `[ONNX Layer: NAME]`, joined by nothing or by the character 0x1E. Names of fused layers
are built by the builder:

* `a + b`: a and b fused; parts are joined by " + " (0x1E in some versions);
* `PWN(x)` and `PWN(PWN(a), b)`: one pointwise kernel;
* `{ForeignNode[a...b]}`: everything between a and b was handed to another compiler (Myelin); what lies in between is only in
  the metadata;
* `(Unnamed Layer* 12) [Shuffle]`: a layer that the parser added for a node and that has no name of its own;
* `ONNXTRT_Broadcast_3`, `ONNXTRT_ShapeShuffle_3`, `..._clone_1`: layers that the parser added;
* `Reformatting CopyNode for Input Tensor 0 to X`: a change of layout or type, put in by the builder;
* `__myl_CastMul_myl0_3`, `X_myl0_3`: a kernel that Myelin generated for a region.
"""

from __future__ import annotations

import re

_ONNX_LAYER = "[ONNX Layer: "
_JOINED = re.compile(r"\][\x1e\x1f]")
_HELPER = re.compile(
    r"\(Unnamed Layer\* \d+\) \[|ONNXTRT_|__my|shuffle_between_|squeeze_after_|unsqueeze_node_after_|reshape_before_"
    r"|copy_d2h_|copy_h2d_|jmp__|\$\$myelin\$\$"
)
_MYELIN_END = re.compile(r"_myl\d+_\d+$")
_WRAPPED = re.compile(r"(?:PWN|pwn)\(")
_MARK = re.compile(r"[()\x1e\x1f]| \+ |, ")
_DEEPEST = 16  # (chosen): builders wrap names two or three times, and each time the whole name is looked at


def metadata_nodes(text: str) -> tuple[str, ...]:
    """The ONNX nodes that a metadata string lists, each once, in its order.

    A node inside of a branch stands there as `node | branch_graph (then_branch) | the_if (If)`: the first part is its name.
    """
    listed = (_JOINED.split(f"{item.rstrip()}\x1e", maxsplit=1) for item in text.split(_ONNX_LAYER)[1:])
    return tuple(dict.fromkeys(item[0].partition(" | ")[0] for item in listed if len(item) > 1))


def parts_of(name: str) -> tuple[str, ...]:
    """The layers that a fused layer's name is built of; what is wrapped more than `_DEEPEST` times stays as it is."""
    return _split_layer_name(name, _DEEPEST)


def _split_layer_name(name: str, left: int) -> tuple[str, ...]:
    text = name.strip()
    if not text or not left:
        return (text,) if text else ()
    if text.startswith("{ForeignNode[") and text.endswith("]}"):
        first, _, last = text[len("{ForeignNode[") : -2].partition("...")
        return tuple(dict.fromkeys((*_split_layer_name(first, left - 1), *_split_layer_name(last, left - 1))))
    pieces = _split_outside_parentheses(text)
    if len(pieces) > 1:
        return tuple(dict.fromkeys(part for piece in pieces for part in _split_layer_name(piece, left - 1)))
    if _WRAPPED.match(text) and text.endswith(")"):
        return _split_layer_name(text[4:-1], left - 1)
    return (text,)


def name_nodes(name: str) -> tuple[str, ...]:
    """The ONNX nodes that a layer's name gives away; layers that parser and builder added are left out."""
    if is_reformat(name):
        return ()
    return tuple(_MYELIN_END.sub("", part) for part in parts_of(name) if not is_helper(part))


def is_helper(name: str) -> bool:
    """Whether parser or builder made this name up."""
    return _HELPER.match(name) is not None


def is_reformat(name: str) -> bool:
    """Whether the layer only changes layout or type."""
    return name.startswith("Reformatting CopyNode")


def _split_outside_parentheses(text: str) -> list[str]:
    """Splits at " + ", ", " and 0x1E outside of parentheses."""
    pieces, depth, start = [], 0, 0
    for found in _MARK.finditer(text):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif depth == 0:
            pieces.append(text[start : found.start()].strip())
            start = found.end()
    pieces.append(text[start:].strip())
    return pieces
