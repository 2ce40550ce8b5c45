"""What a model that feeds itself is given next: one line for each input that is fed, or a function.

    h        = "next_h"                              an output, as it is: a state, a cache, a latent
    ids      = "argmax(logits) from 5 until 2"       the token that is most likely at the last position
    position = "position + 1 from 0"                 a counter
    mask     = "append(mask, 1)"                     one element more on the last axis
    ids      = "append(ids, argmax(logits))"         all tokens so far, where there is no cache
    past     = "present from zeros(1, 4, 0, 16)"     a cache that begins empty

`from` says what the first call gets, where that is not what the data hold; `until` ends the calls behind the one whose
token it is, in the reference and in every row. A tensor whose name is such a line is meant itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Arrays = Mapping[str, np.ndarray]

_LINE = re.compile(r"(?P<what>.+?)(?:\s+from\s+(?P<start>.+?))?(?:\s+until\s+(?P<stop>\d+))?\s*")
_TOKEN = re.compile(r"argmax\((.+)\)")
_APPEND = re.compile(r"append\(([^,]+),\s*(.+)\)")
_SUM = re.compile(r"(.+?)\s*\+\s*(-?[\d.]+)")
_ZEROS = re.compile(r"zeros\(\s*(\d{1,10}(?:\s*,\s*\d{1,10})*)\s*\)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LARGEST = 1 << 28  # elements of zeros; chosen: what is larger is given as data


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How one input is fed: `tensor` as it is, its `token`, or `added` to; `append` puts that behind what the input was.

    `token` is the output of logits, "" where there is none; `start` what the first call gets (None: the data), `stop`
    the token that ends the calls.
    """

    tensor: str = ""
    token: str = ""
    added: float | None = None
    append: bool = False
    start: float | tuple[int, ...] | None = None
    stop: int | None = None


def read_feed(name: str, line: str, inputs: Collection[str], outputs: Collection[str]) -> Feed:
    """What a line says about the input `name`.

    Raises:
        ValueError: it says nothing, or names a tensor that the model has not.
    """
    if line in outputs:
        return Feed(tensor=line)
    parted = _LINE.fullmatch(line)
    what, start, stop = parted.group("what", "start", "stop") if parted else (line, None, None)
    begins = None if start is None else _read_start(line, start)
    ends = None if stop is None else int(stop)
    feed = _read_what(name, line, what.strip(), inputs, outputs)
    if ends is not None and not feed.token:
        raise ValueError(f"{line!r} ends at a token, and feeds none")
    return Feed(tensor=feed.tensor, token=feed.token, added=feed.added, append=feed.append, start=begins, stop=ends)


def start_inputs(feeds: Mapping[str, Feed], arrays: Arrays) -> dict[str, np.ndarray]:
    """What the first call gets for the inputs that are fed."""
    found = {}
    for name, feed in feeds.items():
        held = arrays[name]
        if feed.start is None:
            found[name] = held
        elif isinstance(feed.start, tuple):
            found[name] = np.zeros(feed.start, held.dtype)
        else:
            found[name] = np.full(held.shape, feed.start, held.dtype)
    return found


def feed_inputs(feeds: Mapping[str, Feed], held: Arrays, outputs: Arrays) -> dict[str, np.ndarray]:
    """What the next call gets, behind one that got `held` and gave `outputs`.

    Raises:
        ValueError: an output was not given back, or cannot be what is fed.
    """
    found = {}
    for name, feed in feeds.items():
        before = held[name]
        if feed.token:
            value = _shape_token(token_of(_output_of(outputs, feed.token, name), feed.token), before, name)
        elif feed.added is not None:
            value = np.full((*before.shape[:-1], 1), feed.added) if feed.append else before + feed.added
        else:
            value = _output_of(outputs, feed.tensor, name)
        if value.ndim != before.ndim:
            raise ValueError(
                f"output {feed.tensor or feed.token!r} of shape {list(value.shape)} cannot be fed back as {name!r} of shape "
                f"{list(before.shape)}"
            )
        value = value.astype(before.dtype, copy=False)
        found[name] = np.concatenate([before, value], axis=-1) if feed.append else value
    return found


def has_ended(feeds: Mapping[str, Feed], outputs: Arrays) -> bool:
    """Whether a call of the reference gave the token that ends it, in every row."""
    return any(
        feed.stop is not None and bool(np.all(token_of(outputs[feed.token], feed.token) == feed.stop))
        for feed in feeds.values()
        if feed.token in outputs
    )


def token_of(logits: np.ndarray, name: str) -> np.ndarray:
    """The most likely token at the last position of each row: logits (rows, [positions,] tokens) -> int64 (rows,).

    Raises:
        ValueError: these are no logits.
    """
    if logits.ndim not in {2, 3} or 0 in logits.shape:
        raise ValueError(
            f"output {name!r} of shape {list(logits.shape)} holds no logits: (rows, tokens) or (rows, positions, tokens)"
        )
    last = logits[:, -1] if logits.ndim == 3 else logits
    found: np.ndarray = last.argmax(axis=-1).astype(np.int64)
    return found


def _read_what(name: str, line: str, what: str, inputs: Collection[str], outputs: Collection[str]) -> Feed:
    if what in outputs:
        return Feed(tensor=what)
    if (found := _TOKEN.fullmatch(what)) and found.group(1).strip() in outputs:
        return Feed(token=found.group(1).strip())
    if (found := _SUM.fullmatch(what)) and found.group(1).strip() == name:
        return Feed(added=float(found.group(2)))
    if (found := _APPEND.fullmatch(what)) and found.group(1).strip() == name:
        told = found.group(2).strip()
        if _NUMBER.fullmatch(told):
            return Feed(added=float(told), append=True)
        if told in outputs or not (_SUM.fullmatch(told) or _APPEND.fullmatch(told)):
            inner = _read_what(name, line, told, inputs, outputs)
            return Feed(tensor=inner.tensor, token=inner.token, append=True)
    known = ", ".join(outputs)
    if re.fullmatch(r"[\w./:-]+", what):
        raise ValueError(f"the model has no output {what!r}; it has {known}")
    raise ValueError(
        f"{line!r} does not say what {name!r} is fed: an output ({known}), argmax(OUTPUT), {name} + 1, or append({name}, ...)"
    )


def _read_start(line: str, text: str) -> float | tuple[int, ...]:
    if _NUMBER.fullmatch(text):
        return float(text)
    if found := _ZEROS.fullmatch(text):
        shape = tuple(int(size) for size in found.group(1).split(","))
        if np.prod(shape, dtype=np.float64) <= _LARGEST:
            return shape
    raise ValueError(f"{line!r} begins with {text!r}, which is no number and no zeros(...)")


def _output_of(outputs: Arrays, tensor: str, name: str) -> np.ndarray:
    if tensor not in outputs:
        raise ValueError(f"output {tensor!r} was not given back, and the state {name!r} needs it")
    return outputs[tensor]


def _shape_token(tokens: np.ndarray, before: np.ndarray, name: str) -> np.ndarray:
    """Tokens (rows,) as the input has them: one position of each row."""
    if before.ndim == 2:
        return tokens[:, None]
    if before.ndim == 1:
        return tokens
    raise ValueError(f"a token cannot be fed back as {name!r} of shape {list(before.shape)}")
