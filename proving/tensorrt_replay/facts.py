"""`facts.json`: which version of TensorRT has which member, and the words that it says."""

import json
import os

__all__ = ["FACTS", "has", "numbers", "said"]

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "facts.json"), encoding="utf-8") as _file:
    FACTS = json.load(_file)


def numbers(text):
    """ "10.13" as (10, 13)."""
    return tuple(int(part) for part in text.split("."))


def has(member, version, product):
    """Whether a version has a member, by the facts; one of which nothing is known is there."""
    fact = FACTS["members"].get(member, {})
    if product == "rtx":
        return fact.get("rtx", True)
    return _within(fact, version)


def said(key, version, **parts):
    """(severity, text) of what that version says; None where it says nothing of the kind."""
    held = FACTS["words"][key]
    for one in held if isinstance(held, list) else [held]:
        if _within(one, version):
            return one["severity"], one["text"].format(**parts)
    return None


def _within(fact, version):
    ours = numbers(version)
    first, last = fact.get("first"), fact.get("last")
    if first and ours < numbers(first):
        return False
    return not last or ours[: len(numbers(last))] <= numbers(last)
