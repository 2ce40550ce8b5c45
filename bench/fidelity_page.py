"""Writes docs/fidelity.md and docs/fidelity.svg from what bench/fidelity.py measured.

    python bench/fidelity.py -o bf16.json
    python bench/fidelity_page.py "OpenVINO, BF16 (AVX512-BF16)"=bf16.json "FP16, on ..."=f16.json

Each argument is TITLE=FILE[+FILE...]; the plot has one panel a title and one point a tensor, predicted against measured.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fidelity import summary

from parityscope.report import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIDE, GAP, LEFT, TOP, BOTTOM = 330.0, 70.0, 62.0, 34.0, 50.0
LOW, HIGH = -6, 0  # decades of relative L2 error
STYLE = (
    "<style>svg{font-family:system-ui,sans-serif}text{font-size:12px;fill:#3b444d}.h{font-size:13.5px;font-weight:650}"
    ".grid{stroke:#dfe4e9}.one{stroke:#6d7780}.two{stroke:#6d7780;stroke-dasharray:4 3;opacity:.6}"
    ".p{fill:none;stroke:#0072b2;stroke-width:3.2;stroke-linecap:round;opacity:.55}"
    "@media(prefers-color-scheme:dark){text{fill:#c4ccd4}.grid{stroke:#2b3540}.p{stroke:#56b4e9}}</style>"
)
NAMES = {
    "none": "rounding behind every operator",
    "follow": "following the executed graph",
    "openvino": "profile `openvino`",
    "onnxruntime-cuda": "profile `onnxruntime-cuda`",
}
# A relative L2 error that all zeros have too: of the reference nothing is left in such an output.
LOST = 1.0
# What the predictions are meant to reach on every engine; chosen.
MEDIAN, SPREAD, CORRELATION, MODELS = (0.9, 1.1), (0.75, 1.33), 0.97, 0.9
HEAD = """# How true the predictions are

Per-tensor relative L2 error against FP32 on one real input a model: predicted by simulation on a CPU, divided by what the
engine's own tensors show. One is perfect. Tensors of more than 64 elements; they are observed in chunks, and only chunks
whose output error stays within 1.1 times the undisturbed one count ("counts"). The errors of outputs in the tables are root
mean squares over the input and one to five inputs that differ by 2.4e-4, since the error of one output on one input is a draw.

![Predicted against measured error, one point a tensor](fidelity.svg)

The solid line is equality, the dashed ones a factor of two. Made by `bench/fidelity.py` and `bench/fidelity_page.py`. An entry
such as "inf/0.0064" under outputs is predicted over measured where one of the two is not finite; "both lost" is lost in both.

**An output is lost** if it holds NaN or infinity, or its relative L2 error is 1 or more: as far from the reference as zeros
are. Then nothing of the reference is left in it, and how large the error is says what the engine makes of NaN (its maxima may
hand it on or drop it) and nothing about the format. So a pair counts as predicted where both sides are lost, and as missed
where one is; a ratio of two such numbers is not formed. Below each table stands how many models are of that kind: they show
that a loss is foretold, not how well a size is.

The goals: a median from 0.9 to 1.1, the 10th percentile from 0.75 and the 90th up to 1.33, a correlation of logarithms from
0.97, and all outputs of nine models in ten within a factor of two. Below each table stands which are met. They are about all
tensors of an engine together; a single model may lie outside.

## Outputs of few numbers

The error of a single number is one draw of the rounding. Two such draws of equal size lie within a factor of two of
each other in 41 of 100 cases (their ratio is Cauchy's), so a factor of two on one output and one sample says nothing
about a prediction. Nor does one measured draw against a well-known size (55 of 100). Root mean squares of nine draws on
either side do: 95 of 100. So `predict` draws the rounding of outputs of up to 64 numbers nine times, and so does
`python bench/fidelity.py --outputs --draws 9`, on the engine as well: parameters and inputs are moved by half of what
the format does not resolve, each draw against its own reference. Inputs moved alone, as in the tables below, draw too
little of it: half of the error comes from the parameters, whose roundings stay the same.

OpenVINO BF16 (CPU with AVX512-BF16), profile `openvino`:

| output | numbers | measured (nine draws) | ends | predicted / measured | first draw alone | draws within a factor of two |
| --- | --- | --- | --- | --- | --- | --- |
| plcmos | 1 | 0.0106 | 0.0064 to 0.016 | 0.76 | 0.91 | 8 of 9 |
| vad-18, output | 1 | 0.0103 | 0.0014 to 0.017 | 0.94 | 0.58 | 9 of 9 |
| ocr-cls | 2 | 2.6e-10 | 7e-11 to 4.9e-10 | 1.09 | 0.65 | 9 of 9 |
| dnsmos | 3 | 0.0031 | 0.0011 to 0.006 | 1.12 | 0.94 | 9 of 9 |
| vad-seq, speech_probs | 31 | 0.0225 | 0.016 to 0.029 | 1.09 | 0.84 | 9 of 9 |

Much of the error is a vector that a good profile predicts, so single draws agree more often here than two independent ones would.

## The same tables on another processor

All 14 models once more, a sample each, at f93c91e on an Intel Xeon with AMX and AVX512-FP16
(`python bench/fidelity.py --models MODEL --engines openvino:bf16 --profiles none,openvino -o FILE`, and
with `openvino:f16`), where the tables below were measured on an AMD EPYC (BF16) and with fewer models (FP16):

| engine | prediction | tensors | median | p10 to p90 | correlation of logarithms | counts | outputs within a factor of two |
| --- | --- | --- | --- | --- | --- | --- | --- |
| OpenVINO BF16 | rounding behind every operator | 974 | 1.245 | 1.00 to 1.95 | 0.950 | 99% | |
| OpenVINO BF16 | profile `openvino` | 973 | 1.000 | 0.97 to 1.02 | 1.000 | 99% | 14 of 14 models |
| OpenVINO FP16 | rounding behind every operator | 928 | 1.001 | 0.73 to 1.28 | 0.833 | 100% | |
| OpenVINO FP16 | profile `openvino` | 936 | 0.999 | 0.84 to 1.13 | 0.992 | 100% | 13 of 14 models, or lost in both |

All goals are met for tensors with the profile. The one output that is not within a factor of two is
plcmos' in FP16: one number in one draw (0.09).

## What is missed, and why

* **lite0** is EfficientNet-Lite0 on a photograph, **pitch-noisy** and **dnsmos-noisy** hear white noise a hundredth as loud
  beside the sound, so that nowhere is silence: measured in BF16 alone so far.
* **minilm-i8** was measured without OpenVINO's quantization of activations on the fly, another arithmetic.
* **OpenVINO in FP16** gives back what it computes in FP32 through float16: predicted tensors are rounded like that before
  they are compared.
* **magika in OpenVINO FP16**, following the executed graph: marking a tensor of its FP32 islands as an output makes OpenVINO
  compute it in FP16, so that the graph that is followed is not the one that ran undisturbed. Its error is 7e-5 behind a
  saturated Softmax, predicted 4e-4. The profile knows the islands.
* **pitch and dnsmos in FP16**: an epsilon of 1e-10 (1e-12) guards a Log and vanishes (`parityscope lint`, RNG103): pitch's
  outputs are infinite on CUDA, as predicted. OpenVINO's maxima drop NaN: there it is lost with finite numbers (errors of 5.3, 5.7
  and 2.7 of the outputs' own size; predicted infinite).
* **magika on CUDA**: every tensor up to the first LayerNormalization, which is written out as sums, is predicted (1.00). The
  two ReduceSums over 512 elements then err by 4.5e-4 and 7.5e-4, predicted 3.6e-4 and 5.7e-4: more than one rounding to FP16
  adds. In numpy, partial sums in FP16 of 8 to 32 elements, added up pairwise in FP16, give 4.0e-4 to 6.0e-4 and 5.7e-4 to
  1.1e-3. The variance is the difference of these sums, and its reciprocal root enlarges their error to 0.15 (predicted 0.04)
  where a channel hardly varies; everything behind inherits it. The kernel's order of summation is not known, and the profile
  does not imitate it.
* **Recurrent layers** are taken apart into their time steps, so that what lies inside can be rounded. ONNX Runtime hands them to
  cuDNN with float16 as the type of the *arithmetic* (`mathPrec`): on CUDA the sums are FP16 as well. How many terms are added
  between two roundings is not published; vad-seq's LSTM (128 terms) is predicted at 0.66 to 0.82 of its size with FP32 sums,
  0.93 to 0.99 with two terms at a time, and two is what the profile has: one layer, to which it was fitted. OpenVINO stores
  the state between steps in the format: without that, plcmos (two GRU) in BF16 came out at 0.05 of what is measured.
* **plcmos on CUDA** is not in the table, because the run that it was part of did not end in time. Of the 31 tensors
  that it gave the median is 0.89 (0.81 to 0.99, correlation 0.976). Its output is a score, one number, whose error was
  measured in one draw: the first draw of the prediction is 0.10 of that, 7.8e-5. It is an unlucky one: nine draws lie
  between 1.5e-5 and 1.6e-3, and their root mean square, 7.4e-4, is what `predict` says now. More draws on the GPU were
  not made. vad-seq, measured anew: outputs 0.96, 0.90, 0.90.
* **ocr-rec on CUDA**: the error of its output on one line of text is a draw: over ten inputs that differ by 2e-4 it lies between
  0.0009 and 0.0028.
* **Depthwise convolutions on CUDA** add up in FP32, all of them: each of the 39 of the three PP-OCRv4 and PP-OCRv2 networks,
  run alone on the H200 in FP16, errs 1.00 times as FP32 sums and one rounding of the result do, and 0.19 to 0.64 times as sums
  in FP16 would.
* **layout on CUDA** is not here: observing its tensors in chunks did not end in the eight minutes that there were.
* **ocr-det on CUDA** is the file as it is, whose parameters overflow in FP16: its output is lost (an error of 1), as predicted.
"""


def main() -> None:
    """Reads the files named on the command line and writes the page and the plot."""
    parts = [argument.partition("=") for argument in sys.argv[1:]]
    engines = [(title, [run for file in files.split("+") for run in _runs(Path(file))]) for title, _, files in parts]
    (DOCS / "fidelity.svg").write_text(_plot(engines), encoding="utf-8")
    (DOCS / "fidelity.md").write_text(
        HEAD + "".join(_section(title, runs) for title, runs in engines), encoding="utf-8"
    )


def _runs(path: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return [run for run in runs if "points" in run]


def _profiles(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    points = [point for run in runs for point in run["points"]]
    return [name for name in NAMES if any(name in point for point in points)]


def _section(title: str, runs: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"\n## {title}\n\n"]
    lines.append(
        "| model | prediction | tensors | median | p10 to p90 | correlation of logarithms | counts | outputs |\n"
    )
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
    for run in runs:
        for profile in _profiles(runs):
            ratios = " ".join(_ratio(output, profile) for output in run["outputs"][:4])
            lines.append(_row(run["model"].partition("=")[0], profile, summary(run["points"], profile), ratios))
    for profile in _profiles(runs):
        points = [point for run in runs for point in run["points"]]
        lines.append(_row("**all**", profile, summary(points, profile), _within(runs, profile)))
    lines.append("\n")
    lines.extend(_goals(runs, profile) for profile in _profiles(runs) if profile != "none")
    return "".join(lines)


def _goals(runs: Sequence[Mapping[str, Any]], profile: str) -> str:
    """One line: which goals the prediction meets."""
    found = summary([point for run in runs for point in run["points"]], profile)
    share = _count_within(runs, profile) / len(runs)
    goals = {
        "median": MEDIAN[0] <= found["median"] <= MEDIAN[1],
        "10th to 90th percentile": SPREAD[0] <= found["p10"] and found["p90"] <= SPREAD[1],
        "correlation": found["correlation"] >= CORRELATION,
        "outputs": share >= MODELS,
    }
    missed = [goal for goal, met in goals.items() if not met]
    title = NAMES[profile][0].upper() + NAMES[profile][1:]
    said = f"all but {', '.join(missed)} met" if missed else "all goals met"
    return f"* {title}: {said}.\n"


def _row(model: str, profile: str, found: Mapping[str, float], outputs: str) -> str:
    if "median" not in found:
        return f"| {model} | {NAMES[profile]} | {int(found['count'])} | too few | | | | {outputs} |\n"
    return (
        f"| {model} | {NAMES[profile]} | {int(found['count'])} | {found['median']:.3f} | {found['p10']:.2f} to "
        f"{found['p90']:.2f} | {found['correlation']:.3f} | {found['share']:.0%} | {outputs} |\n"
    )


def _ratio(output: Mapping[str, Any], profile: str) -> str:
    measured, predicted = output["measured"], output[profile]
    if _is_lost(measured) and _is_lost(predicted):
        return "both lost"
    if not isinstance(measured, float) or not isinstance(predicted, float):
        return "/".join(f"{each:.2g}" if isinstance(each, float) else str(each) for each in (predicted, measured))
    return f"{predicted / measured:.2f}" if measured > 0 else "exact"


def _within(runs: Sequence[Mapping[str, Any]], profile: str) -> str:
    lost = sum(any(_is_lost(each["measured"]) for each in run["outputs"]) for run in runs)
    said = f" or lost in both; {lost} of {len(runs)} are lost" if lost else ""
    return f"{_count_within(runs, profile)} of {len(runs)} models within a factor of two{said}"


def _count_within(runs: Sequence[Mapping[str, Any]], profile: str) -> int:
    """On how many models every output is predicted within a factor of two, or as lost where it is."""
    return sum(all(_agree(output["measured"], output[profile]) for output in run["outputs"]) for run in runs)


def _agree(measured: object, predicted: object) -> bool:
    """Whether a prediction is within a factor of two; an output that is lost is to be lost in both."""
    if _is_lost(measured) or _is_lost(predicted):
        return _is_lost(measured) and _is_lost(predicted)
    if not isinstance(measured, float) or not isinstance(predicted, float):
        return False
    return measured == predicted or (measured > 0 and 0.5 <= predicted / measured <= 2)


def _is_lost(error: object) -> bool:
    """Whether nothing of the reference is left; errors that are not finite are texts in the file."""
    return isinstance(error, str) or (isinstance(error, float) and error >= LOST)


def _plot(engines: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    width = LEFT + len(engines) * (SIDE + GAP)
    body = [STYLE]
    for place, (title, runs) in enumerate(engines):
        body.extend(_panel(title, runs, LEFT + place * (SIDE + GAP)))
    drawn = svg.svg_figure(
        "fidelity", (width, TOP + SIDE + BOTTOM), "Predicted against measured error", _describe(engines), body
    )
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _panel(title: str, runs: Sequence[Mapping[str, Any]], left: float) -> list[str]:
    x = svg.linear_scale(LOW, HIGH, left, left + SIDE)
    y = svg.linear_scale(LOW, HIGH, TOP + SIDE, TOP)
    drawn = [svg.svg_text(left, TOP - 14, title, "h")]
    for exponent in range(LOW, HIGH + 1):
        label = svg.format_power(10, exponent)
        drawn.append(svg.svg_element("line", _line(x(exponent), y(LOW), x(exponent), y(HIGH), "grid")))
        drawn.append(svg.svg_element("line", _line(x(LOW), y(exponent), x(HIGH), y(exponent), "grid")))
        drawn.append(svg.svg_text(x(exponent), TOP + SIDE + 17, label, anchor="middle"))
        drawn.append(svg.svg_text(left - 8, y(exponent) + 4, label, anchor="end"))
    drawn.append(svg.svg_element("line", _line(x(LOW), y(LOW), x(HIGH), y(HIGH), "one")))
    two = math.log10(2)
    drawn.append(svg.svg_element("line", _line(x(LOW), y(LOW + two), x(HIGH - two), y(HIGH), "two")))
    drawn.append(svg.svg_element("line", _line(x(LOW + two), y(LOW), x(HIGH), y(HIGH - two), "two")))
    best = _profiles(runs)[-1]
    dots = [
        (x(math.log10(point["measured"])), y(math.log10(point[best])))
        for run in runs
        for point in run["points"]
        if point["counts"] and _shown(point["measured"]) and _shown(point[best])
    ]
    drawn.append(svg.svg_element("path", {"d": svg.point_path(dots), "class": "p"}))
    drawn.append(svg.svg_text(left + SIDE / 2, TOP + SIDE + 38, "measured on the engine", anchor="middle"))
    drawn.append(svg.svg_text(left + 6, TOP + 14, f"predicted, {len(dots)} tensors"))
    return drawn


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> dict[str, object]:
    return {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": css}


def _shown(value: object) -> bool:
    return isinstance(value, float) and 10.0**LOW <= value <= 10.0**HIGH


def _describe(engines: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    said = []
    for title, runs in engines:
        found = summary([point for run in runs for point in run["points"]], _profiles(runs)[-1])
        said.append(f"{title}: median ratio {found.get('median', math.nan):.2f}")
    return "; ".join(said)


if __name__ == "__main__":
    main()
