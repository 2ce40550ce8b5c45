"""What the product says, and what it costs: before and after a redesign, side by side.

    python bench/recorded.py record FILE [--root CHECKOUT] [--faults all|24|NAME,NAME] [--processes N]
    python bench/recorded.py compare BEFORE AFTER

`record` asks one checkout, by default this one, and writes one JSON file of cases:

* `founding/TEST`  : each study that the tests of the founding cases, of several causes and of old runtimes leave behind;
* `planted/FAULT`  : the planted faults and their clean twins, one case each (all of them, or 24 spread over the families);
* `command/NAME`   : whole commands on three trained models: the demo, `diagnose` and `predict` for OpenVINO in BF16, with
  wall and processor seconds and peak MiB.

Of each: verdict, exit code, the first finding that is a cause, the leading suspects with what they introduce and their
share of the output error, the errors expected of every output, the repairs and what became of those that were tried.
The commands run first and alone, as they are timed; then the tests and the faults, side by side where there are processes for
both. `compare` prints, in Markdown, what both cost, how many cases differ in what, and every case whose answer differs. Nothing
is asserted: a reader says of each difference whether it is an improvement. The records are in `bench/recorded_answers`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from whole import QUIET, run

FOUNDING = (
    "test_founding_clip.py",
    "test_founding_efficientnet.py",
    "test_founding_island.py",
    "test_founding_preprocessing.py",
    "test_main_job.py",
    "test_old_runtimes.py",
    "test_several_causes.py",
)
COMMANDS = ("ocr-det", "ocr-rec", "ocr-cls")
DAILY = 24
SUSPECTS = 3
NEAR = 0.05  # chosen: a share or an expected error that moved by less is the same answer
CAUSES = ("cause", "contributing")
SAMPLE = "import sys; from proving.models.samples import sample_of; from parityscope.case.formats.npz import write_npz; import pathlib; write_npz(pathlib.Path(sys.argv[2]), sample_of(sys.argv[1]))"  # noqa: E501 - one line of another interpreter
MODEL = "import sys; from proving.models.fetching import model_path; print(model_path(sys.argv[1]))"
NAMES = "from proving.faults import faults\nfor name, one in faults().items(): print(one.family, name)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    record = verbs.add_parser("record")
    record.add_argument("file", type=Path)
    record.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    record.add_argument("--faults", default=str(DAILY))
    record.add_argument("--processes", type=int, default=2)
    compare = verbs.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.verb == "compare":
        print_differences(read_record(asked.before), read_record(asked.after))
        return
    os.environ["PYTHONPATH"] = QUIET["PYTHONPATH"] = f"{asked.root / 'src'}:{asked.root}"
    cases = record_commands(asked.root)
    write_record(asked.file, cases)
    founding = min(len(FOUNDING), max(1, asked.processes // 2))  # a test file is never shared among processes
    with ThreadPoolExecutor(min(2, asked.processes)) as side_by_side:
        parts = [
            side_by_side.submit(record_founding, asked.root, founding),
            side_by_side.submit(record_planted, asked.root, asked.faults, max(1, asked.processes - founding)),
        ]
        for part in as_completed(parts):
            cases |= part.result()
            write_record(asked.file, cases)
    print(f"{len(cases)} cases in {asked.file}", file=sys.stderr)


def write_record(path: Path, cases: dict[str, dict[str, Any]]) -> None:
    """Written after each part: a record that is cut short still says something."""
    path.write_text(json.dumps(cases, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """The cases of a file that `record` wrote."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def record_founding(root: Path, processes: int) -> dict[str, dict[str, Any]]:
    """Every study that the tests of the founding cases leave behind, and how long each test took."""
    with tempfile.TemporaryDirectory() as scratch:
        times = Path(scratch, "times.xml")
        words = ["-q", "-p", "no:cacheprovider", "--numprocesses", str(processes), "--dist", "loadfile"]
        files = [str(root / "tests" / name) for name in FOUNDING]
        kept = [f"--basetemp={scratch}/kept", "-o", "tmp_path_retention_policy=all", f"--junitxml={times}"]
        subprocess.run([sys.executable, "-m", "pytest", *files, *words, *kept], cwd=root, check=False)
        found = {}
        for path in sorted(Path(scratch, "kept").rglob("study.json")):
            # kept/popen-gw0/TEST0/STUDY/study.json; the folder of a process is not part of the name
            place = [one for one in path.relative_to(Path(scratch, "kept")).parts if not one.startswith("popen-")]
            found["founding/" + "/".join(place[:-1])] = answer_of(json.loads(path.read_text(encoding="utf-8")))
        cases = ET.parse(times).iter("testcase") if times.is_file() else []  # noqa: S314 - our own test run wrote it
        for case in cases:
            name = f"founding-test/{case.get('classname')}.{case.get('name')}"
            bad = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
            found[name] = {"verdict": bad[0] if bad else "passed", "wall_s": float(case.get("time") or 0)}
    return found


def record_planted(root: Path, chosen: str, processes: int) -> dict[str, dict[str, Any]]:
    """The outcome of planted faults and their clean twins."""
    listed = subprocess.run([sys.executable, "-c", NAMES], cwd=root, check=True, capture_output=True, text=True).stdout
    names = [line.split()[1] for line in sorted(listed.splitlines())]
    if chosen.isdigit():
        names = names[:: max(1, len(names) // int(chosen))][: int(chosen)]
    elif chosen != "all":
        names = chosen.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch, "results.jsonl")
        words = [*names, "--results", str(results), "--processes", str(processes)]
        subprocess.run(
            [sys.executable, "-m", "proving.faults", *words], cwd=root, check=False, stdout=subprocess.DEVNULL
        )
        outcomes = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    found = {}
    for one in outcomes:
        case = one.pop("case")
        name = f"planted/{case['fault']}/{case['subject']}" + ("/clean" if case["clean"] else "")
        found[name] = one
    return found


def record_commands(root: Path) -> dict[str, dict[str, Any]]:
    """Whole commands on trained models, with their cost."""
    found = {}
    python = sys.executable
    with tempfile.TemporaryDirectory() as scratch:
        demo = run([python, str(root / "bench" / "demo.py")])
        found["command/demo"] = costs(*demo) | answer_at(Path("demo-study/study.json"))
        for model in COMMANDS:
            inputs = Path(scratch, f"{model}.npz")
            try:
                subprocess.run([python, "-c", SAMPLE, model, str(inputs)], check=True)
                path = subprocess.run([python, "-c", MODEL, model], check=True, capture_output=True, text=True).stdout
            except subprocess.CalledProcessError:
                print(f"{model}: left out: it cannot be had here", file=sys.stderr)
                continue
            rest = [path.strip(), "--inputs", str(inputs), "--quiet"]
            study, foretold = Path(scratch, model), Path(scratch, f"{model}.json")
            diagnose = ["diagnose", *rest, "--candidate", "openvino:bf16", "--study", str(study)]
            predict = ["predict", *rest, "--formats", "f16,bf16", "-o", str(foretold)]
            found[f"command/diagnose {model}"] = ask(diagnose) | answer_at(study / "study.json")
            found[f"command/predict {model}"] = ask(predict) | foretold_at(foretold)
    return found


def costs(status: int, wall_s: float, cpu_s: float, peak_mib: float) -> dict[str, Any]:
    return {"status": status, "wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2), "peak_mib": round(peak_mib)}


def ask(words: list[str]) -> dict[str, Any]:
    return costs(*run([sys.executable, "-m", "parityscope", *words]))


def foretold_at(path: Path) -> dict[str, Any]:
    """What a prediction says of each output and of the layer that adds most, by format; nothing where none was written."""
    if not path.is_file():
        return {}
    formats = json.loads(path.read_text(encoding="utf-8"))["formats"]
    return {
        "outputs": {
            one["precision"]: {each["site"]["tensor"]: each["rel_l2"] for each in one["outputs"]} for one in formats
        },
        "worst": {one["precision"]: one["worst"][:SUSPECTS] for one in formats},
    }


def answer_at(path: Path) -> dict[str, Any]:
    """What a study says; nothing where none was written."""
    return answer_of(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def answer_of(study: dict[str, Any]) -> dict[str, Any]:
    """What a reader takes from a study."""
    causes = [one for one in study.get("findings", []) if one["role"] in CAUSES]
    suspects = study.get("suspects", [])[:SUSPECTS]
    tried = [repair for one in causes for repair in one.get("repairs", []) if repair.get("trial")]
    return {
        "verdict": study.get("verdict"),
        "causes": [f"{one['code']} {one['role']} {one['title']}" for one in causes],
        "suspects": [
            {"tensor": one["site"].get("tensor"), "introduced": one.get("introduced"), "share": one.get("share")}
            for one in suspects
        ],
        "expected": {one["name"]: one.get("expected") for one in study.get("outputs", []) if "name" in one},
        "repairs": [f"{one['repair']}: {one['trial'].get('verdict')}" for one in tried],
    }


def print_differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> None:
    """What both cost, how many cases differ in what, and a table of these."""
    print("| | wall s | processor s | peak MiB |\n| --- | --- | --- | --- |")
    for name in sorted(before.keys() & after.keys()):
        if name.startswith("command/"):
            keys = ("wall_s", "cpu_s", "peak_mib")
            pairs = [" -> ".join(str(side[name].get(key, "")) for side in (before, after)) for key in keys]
            print(f"| `{name.removeprefix('command/')}` | {' | '.join(pairs)} |")
    for kind, what, key in (
        ("founding-test/", "tests of founding cases", "wall_s"),
        ("planted/", "planted cases", "seconds"),
    ):
        both = [name for name in before.keys() & after.keys() if name.startswith(kind)]
        sums = [sum(side[name].get(key) or 0 for name in both) for side in (before, after)]
        print(f"| {len(both)} {what}, together | {sums[0]:.0f} -> {sums[1]:.0f} | | |")
    every = before.keys() | after.keys()
    differ = {name: rows for name in sorted(every) if (rows := differing(before.get(name), after.get(name)))}
    print(f"\n{len(every) - len(differ)} of {len(every)} cases give the same answer. The others differ in:\n")
    for what, count in Counter(what for rows in differ.values() for what, _, _ in rows).most_common():
        print(f"* {what}: {count}")
    print("\n| case | what | before | after |\n| --- | --- | --- | --- |")
    for name, rows in differ.items():
        for what, was, now in rows:
            print(f"| {name} | {what} | {was} | {now} |")


def differing(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """(what, before, after) of everything that a reader would call another answer."""
    if before is None or after is None:
        return [("is there", str(before is not None), str(after is not None))]
    costly = {"wall_s", "cpu_s", "peak_mib", "seconds", "experiments"}
    return [
        (key, shown(before.get(key)), shown(after.get(key)))
        for key in sorted((before.keys() | after.keys()) - costly)
        if not alike(before.get(key), after.get(key))
    ]


def alike(before: object, after: object) -> bool:
    """Equal, numbers up to `NEAR` of the larger."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(alike(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(alike, before, after))
    if isinstance(before, float | int) and isinstance(after, float | int):
        return abs(before - after) <= NEAR * max(abs(before), abs(after))
    return before == after


def shown(value: object) -> str:
    return json.dumps(value, sort_keys=True).replace("|", "\\|")[:300]


if __name__ == "__main__":
    main()
