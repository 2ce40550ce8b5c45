"""`make demo`: the main job on a real model with real input, checked.

Runs `parityscope diagnose` on the PP-OCRv4 text detector with a scanned page. On a CPU that executes FP16 natively the
candidate is OpenVINO in FP16; on any other CPU OpenVINO executes that wish in BF16 or FP32, so the FP16 simulation is
the candidate (weights beyond range saturate, as OpenVINO's converter does), and the demo says so.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from parityscope.backends import Capture
from parityscope.backends.opening import open_target
from parityscope.backends.targets import parse_target
from parityscope.case.formats.npz import write_npz
from parityscope.case.model import load_model
from proving.models.fetching import cache_folder, model_path, ocr_det_input, page_image

STUDY = Path("demo-study")
NODE = "p2o.BatchNormalization.1"
PARAMETER, VALUE = "batch_norm_0.w_2", 97_903_600
WIDTH, HEIGHT = 768, 384


def main() -> int:
    model = model_path("ocr-det")
    candidate = choose_candidate(model)
    shutil.rmtree(STUDY, ignore_errors=True)
    # Kept beside the model, so that the commands that the report ends in can be run.
    page = cache_folder() / "demo" / "page.npz"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_npz(page, ocr_det_input(page_image(), (WIDTH, HEIGHT)))
    words = ["diagnose", str(model), "--candidate", candidate, "--inputs", str(page), "--study", str(STUDY)]
    return judge(subprocess.run([sys.executable, "-m", "parityscope", *words], check=False).returncode)


def choose_candidate(model: Path) -> str:
    with open_target(load_model(model), parse_target("openvino:f16"), Capture()) as session:
        executed = session.executed.executed if session.executed else ""
    if executed == "f16":
        print("demo: this CPU executes FP16: the candidate is OpenVINO itself\n", flush=True)
        return "openvino:f16"
    print(
        f"demo: this CPU has no native FP16 (OpenVINO executes {executed} instead), so the candidate is the FP16 "
        "simulation\n",
        flush=True,
    )
    return "sim:f16?overflow=saturate"


def judge(status: int) -> int:
    if status != 1:
        print(f"demo FAILED: diagnose ended with {status}, and 1 (beyond policy) was expected")
        return 1
    document = json.loads((STUDY / "study.json").read_text(encoding="utf-8"))
    first = document["suspects"][0]
    cause = next((one for one in document["findings"] if one["role"] == "cause"), {"details": {}})
    trials = [repair["trial"] for repair in cause.get("repairs", []) if repair["trial"]]
    checks = {
        "the verdict is beyond": document["verdict"] == "beyond",
        f"the first suspect is {NODE}": first["site"]["node"] == NODE,
        "it introduces over 100 times what it inherits": first["introduced"] > 100 * first["inherited"],
        f"the cause names {PARAMETER} = {VALUE:,}": cause["details"].get("parameter") == PARAMETER
        and cause["details"].get("value") == VALUE,
        "folding it was tried and repairs it": any(trial["verdict"] == "within" for trial in trials),
        "the report was written": (STUDY / "report.html").stat().st_size > 0,
    }
    print()
    for words, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {words}")
    print(f"\nread the report: {STUDY / 'report.html'}")
    activate = shlex.quote(str(Path(sys.executable).with_name("activate")))
    print(f"its commands are on the PATH after:  . {activate}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
