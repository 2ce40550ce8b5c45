"""The reference's preparation of an image, as a recipe: a file that says it, and the programs that read it do the same.

What it changes: the deployment's own code, which is to place, resample and normalize images as the recipe says.

Why it repairs: a letterbox for a stretched image, another kernel, another normalization change what the network sees, in every
number format alike.

Risk: none to the model. What was recognised is one of the ways that are known; how near its result comes to the reference's
inputs stands in the finding.

Cost: that of the reference's preparation.

How to undo: take the lines out again.

What the finding says: details "recipe": the keys of a recipe and their values, as case/imaging/recipe_file.py describes them.

Source: case/imaging/recipe_file.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parityscope.repairs import Advice

if TYPE_CHECKING:
    from parityscope.records import Finding


def _write_recipe(finding: Finding) -> str | None:
    recipe = finding.details.get("recipe")
    if not isinstance(recipe, dict) or not recipe:
        return None
    lines = [_toml_line(str(key), value) for key, value in recipe.items()]
    return None if any(line is None for line in lines) else "\n".join([*map(str, lines), ""])


def _toml_line(key: str, value: object) -> str | None:
    """One line of TOML; None for what a recipe does not hold."""
    if not key.isidentifier():
        return None
    match value:
        case bool():
            return f"{key} = {str(value).lower()}"
        case str():
            return f'{key} = "{value}"' if value.isprintable() and not {'"', "\\"} & set(value) else None
        case int() | float():
            return f"{key} = {value}"
        case list() | tuple() if all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
            return f"{key} = [{', '.join(map(str, value))}]"
    return None


ADVICE = Advice(
    name="prepare_by_recipe",
    title="The reference's preparation of an image, as a recipe",
    risk="none to the model",
    write=_write_recipe,
)
