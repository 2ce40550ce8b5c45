"""A forecast as strict JSON: `schema` first, non-finite numbers as the strings "NaN", "Infinity" and "-Infinity".

Margins are in powers of two: from a tensor's largest element to the format's largest number (`overflow`), from its
smallest one to the smallest normal number (`subnormal`) and to what is rounded to zero (`zero`); negative is beyond.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from parityscope.arithmetic.formats import known_format
from parityscope.checks.generated_inputs import findings_about
from parityscope.report._plain import document_head, plain_items

if TYPE_CHECKING:
    from parityscope.case import Inputs, Model
    from parityscope.expectation.forecasts import Forecast, FormatForecast, MagnitudeRange

SCHEMA = "parityscope-forecast/1"
_WORST = 20  # layers named as introducing most; all are in `layers`


def forecast_document(found: Forecast, model: Model, inputs: Inputs, *, command: str = "") -> dict[str, Any]:
    """Everything that a forecast says, as plain data."""
    return plain_items(
        {
            **document_head(command, schema=SCHEMA),
            "lost": found.lost,
            "model": {"name": model.named.stem, "path": str(model.named), "sha256": model.sha256, "nodes": model.nodes},
            "inputs": {"origin": inputs.origin, "samples": found.samples, "generated": inputs.generated},
            "profile": found.profile,
            "statements": found.statements,
            "findings": list(findings_about(inputs)),
            "formats": [_format_as_data(each) for each in found.formats],
            "ranges": [_range_as_data(each, found) for each in found.ranges],
            "skipped": found.skipped,
            "seconds": found.seconds,
        }
    )


def _format_as_data(found: FormatForecast) -> dict[str, Any]:
    number_format = known_format(found.precision)
    return {
        "precision": found.precision,
        "title": number_format.title,
        "largest": number_format.largest,
        "smallest_normal": number_format.smallest_normal,
        "smallest_subnormal": number_format.smallest_subnormal,
        "lost": found.lost,
        "statements": found.statements,
        "cause": found.cause,
        "outputs": [{**asdict(each), "expected": each.expected, "lost": each.lost} for each in found.outputs],
        "worst": [each.site.tensor for each in found.worst(_WORST)],
        "layers": found.layers,
        "parameters": found.parameters,
        "rounding": found.rounding,
    }


def _range_as_data(held: MagnitudeRange, found: Forecast) -> dict[str, Any]:
    margins = {}
    for each in found.formats:
        number_format = known_format(each.precision)
        margins[each.precision] = {
            "overflow": held.to_overflow(number_format),
            "subnormal": held.to_subnormal(number_format),
            "zero": held.to_zero(number_format),
        }
    return {**asdict(held), "margins": margins}
