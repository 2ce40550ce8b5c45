"""Steps for tokens: integer inputs of one shape (samples, positions), padded at the end; some networks take them as floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from parityscope.checks.preprocessing.steps import PREPARED, RAW, PreprocessingStep
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Arrays = Mapping[str, np.ndarray]
    # A row of each input and the number of its tokens -> the new rows.
    Rows = Callable[[dict[str, np.ndarray], int], dict[str, np.ndarray]]

# [CLS] and [SEP], or their like: fewer tokens than these and one word are nothing to cut.
_SHORTEST = 3
# By how much ids are moved where another count of reserved ones stands in front: padding alone, or padding and unknown.
_MOVED = (1, -1, 2, -2)
# Ids that tokenizers keep for padding, the beginning, the end and what is unknown, in one order or another.
_RESERVED = (0, 1, 2, 3)
# To which tokenizers are set to pad; a model of another fixed length refuses them.
_LENGTHS = (16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Inputs of token models: ids, the attention mask and segments (token types), "" where there is none."""

    ids: str
    mask: str
    segments: str

    @property
    def names(self) -> tuple[str, ...]:
        """All that there are."""
        return tuple(name for name in (self.ids, self.mask, self.segments) if name)


def tokens_of(sample: Arrays) -> Tokens | None:
    """Which inputs are tokens; None where none is.

    Ids reach beyond 1; the mask and the segments hold 0 and 1, and the mask is the one whose name says so, or that
    begins with 1 in every row.
    """
    whole = {name: each for name, each in sample.items() if each.ndim == 2 and each.size and _holds_ids(each)}
    ids = next((name for name, each in whole.items() if each.max() > 1 and each.min() >= 0), "")
    if not ids:
        return None
    flags = {
        name: each
        for name, each in whole.items()
        if name != ids and each.shape == whole[ids].shape and each.max() <= 1 and each.min() >= 0
    }
    mask = next((name for name in flags if "mask" in name.lower()), "")
    mask = mask or next((name for name, each in flags.items() if (each[:, 0] == 1).all()), "")
    segments = next((name for name in flags if name != mask), "")
    return Tokens(ids=ids, mask=mask, segments=segments)


def _holds_ids(array: np.ndarray) -> bool:
    """Whether an array is of integers; of floats, whether they are whole and rows end in zeros, as tables' rows do not."""
    if array.dtype.kind != "f":
        return array.dtype.kind in "iu"
    whole = bool(np.isfinite(array).all()) and bool((array == np.rint(array)).all())
    return whole and bool((array[:, 0] != 0).all()) and bool((array[:, -1] == 0).any())


def token_steps(tokens: Tokens, samples: Sequence[Arrays]) -> list[PreprocessingStep]:
    """Every step for a token model that is given such samples."""
    ids, mask, segments = tokens.ids, tokens.mask, tokens.segments
    padding = _most_repeated([sample[ids] for sample in samples])
    found = [
        _rebuild_rows(tokens, "padding-left", "pads on the left", PREPARED, _move_padding_left(tokens.names)),
        _rebuild_rows(
            tokens,
            "truncated",
            "truncates one token earlier, keeping the last special token",
            RAW,
            _truncate_keeping_end,
        ),
        _rebuild_rows(tokens, "cut", "cuts the last token off", RAW, _cut_last_token),
        _rebuild_rows(
            tokens, "no-special", "adds no special tokens at the beginning and the end", RAW, _without_special
        ),
        _rebuild_rows(tokens, "no-first", "adds no special token at the beginning", RAW, _without_first),
        *(_move_ids(tokens, by, kept=False) for by in _MOVED),
        # A mask hides what the padding's id is, and nothing lies below the least of them.
        *(_move_ids(tokens, by, kept=True) for by in _MOVED if by > 0 and not mask),
        *(_pad_with(ids, padding, other) for other in _RESERVED if other != padding and not mask),
        *(_pad_to_length(tokens, length) for length in _LENGTHS),
    ]
    if mask:
        found += [
            _change_elements(
                mask, "mask-ones", "gives an attention mask of ones, so that padding is attended to", np.ones_like
            ),
            _change_elements(mask, "mask-inverted", "inverts the attention mask", lambda array: 1 - array),
            _rebuild_rows(
                tokens,
                "ids-left",
                "pads the ids on the left, and the mask on the right",
                PREPARED,
                _move_padding_left((ids,)),
            ),
        ]
    if segments:
        found += [
            _change_elements(segments, "segments-zero", "gives token types of zero", np.zeros_like),
            _change_elements(segments, "segments-one", "gives token types of one", np.ones_like),
        ]
    return found


def _pad_to_length(tokens: Tokens, length: int) -> PreprocessingStep:
    """Rows of a fixed length whose padding counts: the mask is one there."""

    def apply(inputs: Arrays) -> Arrays | None:
        missing = length - inputs[tokens.ids].shape[1]
        if missing <= 0:
            return None
        fill = (
            dict.fromkeys(tokens.names, 0)
            | {tokens.ids: _padding_id(tokens, inputs)}
            | ({tokens.mask: 1} if tokens.mask else {})
        )
        made = {
            name: np.pad(inputs[name], ((0, 0), (0, missing)), constant_values=value) for name, value in fill.items()
        }
        if tokens.mask:
            made[tokens.mask][:] = 1
        return {**inputs, **made}

    words = f"pads to {length} tokens" + (", with an attention mask of ones" if tokens.mask else "")
    return PreprocessingStep(
        key=f"{tokens.ids}:padded-{length}", words=words, stage=PREPARED, slot="padding", apply=apply
    )


def _pad_with(ids: str, padding: int, other: int) -> PreprocessingStep:
    """Another id in the place of the one that pads."""
    return _change_elements(
        ids,
        f"ids-padded-with-{other}",
        f"pads with id {other} in place of {padding}",
        lambda array: np.where(array == padding, array.dtype.type(other), array),
    )


def _most_repeated(samples: Sequence[np.ndarray]) -> int:
    """The id of the longest run in a row of any sample, which is what pads wherever anything does."""
    longest, found = 0, 0
    for row in (row for ids in samples for row in ids):
        ends = np.append(np.flatnonzero(np.diff(row)), len(row) - 1)
        runs = np.diff(ends, prepend=-1)
        if runs.max() > longest:
            longest, found = int(runs.max()), int(row[ends[runs.argmax()]])
    return found


def _move_ids(tokens: Tokens, by: int, *, kept: bool) -> PreprocessingStep:
    """Ids counted from elsewhere; with `kept` the padding is what it was, and rows without padding are left to the other step."""

    def apply(inputs: Arrays) -> Arrays | None:
        ids = inputs[tokens.ids]
        padded = ids == _padding_id(tokens, inputs)
        if kept and not padded.any():
            return None
        moved = np.maximum(ids + ids.dtype.type(by), 0) if by < 0 else ids + ids.dtype.type(by)
        return {**inputs, tokens.ids: np.where(padded, ids, moved) if kept else moved}

    words = f"gives every token id plus {by}" if by > 0 else f"gives every token id minus {-by}"
    words = f"{words}, but for the padding" if kept else words
    key = f"{tokens.ids}:ids-{by:+d}{'-kept' if kept else ''}"
    return PreprocessingStep(key=key, words=words, stage=PREPARED, slot="ids", apply=apply)


def _change_elements(name: str, key: str, words: str, change: Callable[[np.ndarray], np.ndarray]) -> PreprocessingStep:
    """A step that changes every element; its slot is what its key begins with: ids, mask or segments."""

    def apply(inputs: Arrays) -> Arrays:
        return {**inputs, name: np.ascontiguousarray(change(inputs[name]).astype(inputs[name].dtype))}

    return PreprocessingStep(key=f"{name}:{key}", words=words, stage=PREPARED, slot=key.partition("-")[0], apply=apply)


def _rebuild_rows(tokens: Tokens, key: str, words: str, stage: int, change: Rows) -> PreprocessingStep:
    """A step that rebuilds every row; shorter rows are padded with zeros to the length that they had."""

    def apply(inputs: Arrays) -> Arrays | None:
        made = {name: np.zeros_like(inputs[name]) for name in tokens.names}
        pad = _padding_id(tokens, inputs)
        made[tokens.ids][:] = pad
        for row in range(len(inputs[tokens.ids])):
            count = _count_tokens(tokens, inputs, row, pad)
            if count <= _SHORTEST:
                return None
            changed = change({name: inputs[name][row] for name in tokens.names}, count)
            for name, values in changed.items():
                made[name][row, : len(values)] = values
        return {**inputs, **made}

    slot = "cut" if stage == RAW else "padding"
    return PreprocessingStep(key=f"{tokens.ids}:{key}", words=words, stage=stage, slot=slot, apply=apply)


def _padding_id(tokens: Tokens, inputs: Arrays) -> int:
    """The id that pads: what stands where the mask is 0, else 0."""
    if tokens.mask:
        masked = inputs[tokens.ids][inputs[tokens.mask] == 0]
        return int(masked[0]) if masked.size else 0
    return 0


def _count_tokens(tokens: Tokens, inputs: Arrays, row: int, pad: int) -> int:
    """How many positions of a row hold tokens."""
    if tokens.mask:
        return int((inputs[tokens.mask][row] != 0).sum())
    held = np.flatnonzero(inputs[tokens.ids][row] != pad)
    return int(held[-1]) + 1 if held.size else 0


def _move_padding_left(names: tuple[str, ...]) -> Rows:
    def change(rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
        return {name: np.roll(row, len(row) - count) if name in names else row for name, row in rows.items()}

    return change


def _truncate_keeping_end(rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    return {name: np.append(row[: count - 2], row[count - 1]) for name, row in rows.items()}


def _cut_last_token(rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    return {name: row[: count - 1] for name, row in rows.items()}


def _without_special(rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    return {name: row[1 : count - 1] for name, row in rows.items()}


def _without_first(rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    return {name: row[1:count] for name, row in rows.items()}
