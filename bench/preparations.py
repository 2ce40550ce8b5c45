"""Random compositions of wrong preprocessing, done with OpenCV and Pillow, and how many of them the search names.

    python bench/preparations.py OUT [--count 10] [--seed 0] [--search]

Each composition is drawn from what deployments do: two to five of another placing, padding, kernel, normalization, order of
channels and colours. It prepares three images of `tests/data/rtdetr-digits`, the network answers, and only these answers and
the images are given to `diagnose`. A composition counts as named where the first finding is PRE001 as a cause, and what the
finding says makes what the deployment made: to 3 % of what the fault changes. With `--search` the search of PRE001 is run by
itself, in this process. Needs opencv-python-headless.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
from PIL import Image

DATA = Path(__file__).parents[1] / "tests" / "data" / "rtdetr-digits"
SIZE = 320
NAMED = 0.03  # of the distance between right and wrong inputs

OPENCV = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos4": cv2.INTER_LANCZOS4,
}
PILLOW = ("NEAREST", "BOX", "BILINEAR", "HAMMING", "BICUBIC", "LANCZOS")
NORMALS = {
    "unit": ((0.0,) * 3, (1.0,) * 3, 255.0),
    "bytes": ((0.0,) * 3, (1.0,) * 3, 1.0),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 255.0),
    "half": ((0.5,) * 3, (0.5,) * 3, 255.0),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711), 255.0),
    "caffe": ((123.675, 116.28, 103.53), (1.0,) * 3, 1.0),
}
FITS = ("stretch", "letterbox middle", "letterbox first", "letterbox last", "shorter 320", "shorter 366", "central 366")
FILLS = (0, 114, 128, 255)
COLOURS = ("as they are", "as they are", "as they are", "limited range", "grey", "inverted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One composition; `behind` pads with 0 behind the normalization."""

    fit: str
    fill: int
    behind: bool
    library: str
    kernel: str
    normal: str
    bgr: bool
    colours: str


RIGHT = Drawn(
    fit="stretch",
    fill=0,
    behind=False,
    library="pillow",
    kernel="BILINEAR",
    normal="unit",
    bgr=False,
    colours="as they are",
)


def drawn(seed: int) -> Drawn:
    """Two to five parts are wrong; the others are as the model expects them."""
    rng = np.random.default_rng([seed, 20261125])
    library = str(rng.choice(["opencv", "pillow"]))
    whole = Drawn(
        fit=str(rng.choice(FITS[1:])),
        fill=int(rng.choice(FILLS)),
        behind=bool(rng.random() < 0.25),
        library=library,
        kernel=str(rng.choice(list(OPENCV) if library == "opencv" else PILLOW)),
        normal=str(rng.choice([name for name in NORMALS if name != "unit"])),
        bgr=True,
        colours=str(rng.choice(COLOURS[3:])),
    )
    parts = (("fit", "fill", "behind"), ("library", "kernel"), ("normal",), ("bgr",), ("colours",))
    weights = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    wrong = rng.choice(len(parts), size=int(rng.integers(2, 6)), replace=False, p=weights)
    kept = {name for place in wrong for name in parts[place]}
    return Drawn(**{name: value if name in kept else getattr(RIGHT, name) for name, value in asdict(whole).items()})


def resized(one: Drawn, image: np.ndarray, width: int, height: int) -> np.ndarray:
    if one.library == "opencv":
        return cv2.resize(image, (width, height), interpolation=OPENCV[one.kernel])
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[one.kernel]))


def normalized(one: Drawn, pixels: np.ndarray) -> np.ndarray:
    mean, deviation, scale = NORMALS[one.normal]
    return ((pixels.astype(np.float32) / scale - np.array(mean)) / np.array(deviation)).astype(np.float32)


def coloured(one: Drawn, pixels: np.ndarray) -> np.ndarray:
    if one.colours == "limited range":
        pixels = np.rint(16 + pixels.astype(float) * 219 / 255).astype(np.uint8)
    elif one.colours == "grey":
        pixels = np.repeat(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=-1)
    elif one.colours == "inverted":
        pixels = 255 - pixels
    return pixels[..., ::-1] if one.bgr else pixels


def prepared(one: Drawn, image: np.ndarray) -> np.ndarray:
    """float32 (1, 3, 320, 320) of a uint8 RGB image."""
    height, width = image.shape[:2]
    kind, _, word = one.fit.partition(" ")
    if kind == "letterbox":
        ratio = min(SIZE / height, SIZE / width)
        inner = round(width * ratio), round(height * ratio)
        small = normalized(one, coloured(one, resized(one, image, *inner)))
        colour = coloured(one, np.full((1, 1, 3), one.fill, np.uint8))
        filling = np.zeros(3, np.float32) if one.behind else normalized(one, colour)[0, 0]
        found = np.broadcast_to(filling, (SIZE, SIZE, 3)).copy()
        spare = SIZE - inner[0], SIZE - inner[1]
        left, top = {"middle": (spare[0] // 2, spare[1] // 2), "first": (0, 0), "last": spare}[word]
        found[top : top + inner[1], left : left + inner[0]] = small
    else:
        if kind == "shorter":
            ratio = int(word) / min(height, width)
            image = resized(one, image, int(width * ratio), int(height * ratio))
            top, left = (image.shape[0] - SIZE) // 2, (image.shape[1] - SIZE) // 2
            image = image[top : top + SIZE, left : left + SIZE]
        elif kind == "central":
            side = round(SIZE / int(word) * min(height, width))
            top, left = (height - side) // 2, (width - side) // 2
            image = resized(one, np.ascontiguousarray(image[top : top + side, left : left + side]), SIZE, SIZE)
        else:
            image = resized(one, image, SIZE, SIZE)
        found = normalized(one, coloured(one, image))
    return np.ascontiguousarray(found.transpose(2, 0, 1)[np.newaxis], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", action="store_true")
    chosen = parser.parse_args()
    named = 0
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        one = drawn(seed)
        right, told = (searched if chosen.search else judged)(one, chosen.out / str(seed))
        named += right
        print(f"{seed} {'named' if right else 'MISSED'} {one}\n    {told}", flush=True)
    print(f"{named} of {chosen.count} named")


def judged(one: Drawn, folder: Path) -> tuple[bool, str]:
    """Whether the diagnosis names the composition, and what it said."""
    network = onnxruntime.InferenceSession(DATA / "rtdetr-digits.onnx")
    for name in ("images", "outputs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "right.toml").write_text("size = [320, 320]\n")
    inputs = []
    for number in range(3):
        image = np.asarray(Image.open(DATA / "images" / f"{number:03d}.jpg").convert("RGB"))
        Image.fromarray(image).save(folder / "images" / f"{number:03d}.png")
        x = prepared(one, image)
        inputs.append((prepared(RIGHT, image), x))
        logits, boxes = network.run(None, {"images": x})
        np.savez(folder / "outputs" / f"{number:03d}.npz", logits=logits, boxes=boxes)
    command = [
        "diagnose",
        str(DATA / "rtdetr-digits.onnx"),
        "--inputs",
        str(folder / "images"),
        "--match",
        "logits,boxes",
    ]
    command += ["--preprocess", str(folder / "right.toml"), "--candidate", f"saved?path={folder / 'outputs'}"]
    command += ["--format", "json", "--quiet", "--study", str(folder / "study")]
    done = subprocess.run([sys.executable, "-m", "parityscope", *command], capture_output=True, text=True, check=False)
    if not done.stdout:
        return False, done.stderr[-300:]
    found = json.loads(done.stdout)
    first = found["findings"][0] if found["findings"] else {"code": "nothing", "claim": ""}
    told = f"{first['code']} {first.get('details', {}).get('words', '')} ({first.get('details', {}).get('runs')} runs)"
    if first["code"] != "PRE001" or first["role"] != "cause":
        return False, told
    distance = said_distance(first["details"], folder / "images", inputs)
    return distance <= NAMED, f"{told}; what it says is {distance:.2%} off"


def searched(one: Drawn, folder: Path) -> tuple[bool, str]:
    """As `judged`, from the search alone: a composition that is certain, held against three images."""
    from parityscope.checks.preprocessing.images import image_of, image_steps
    from parityscope.checks.preprocessing.placings import placing_steps, recognise_placing
    from parityscope.checks.preprocessing.searching import PreprocessingQuestion, search_preprocessing
    from parityscope.checks.preprocessing.steps import ORIGINAL, describe_steps
    from parityscope.comparison.rows import make_aligner
    from parityscope.records import Policy

    network = onnxruntime.InferenceSession(DATA / "rtdetr-digits.onnx")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    names, samples, candidate, inputs = ("logits", "boxes"), [], [], []
    for number in range(3):
        image = np.asarray(Image.open(DATA / "images" / f"{number:03d}.jpg").convert("RGB"))
        Image.fromarray(image).save(folder / "images" / f"{number:03d}.png")
        inputs.append((prepared(RIGHT, image), prepared(one, image)))
        samples.append({"images": inputs[-1][0], ORIGINAL: image})
        candidate.append(dict(zip(names, network.run(None, {"images": inputs[-1][1]}), strict=True)))
    pictures = [sample[ORIGINAL] for sample in samples]
    found_image = image_of("images", inputs[0][0])
    known = recognise_placing(pictures, [right for right, _ in inputs], 1)
    question = PreprocessingQuestion(
        samples=samples,
        candidate=candidate,
        run=lambda arrays: dict(zip(names, network.run(None, dict(arrays)), strict=True)),
        bounds=dict.fromkeys(names, 1e-5),
        runs=1000,
        align=make_aligner(Policy(matched=names)),
    )
    steps = [*image_steps(found_image, [{"images": right} for right, _ in inputs]), *placing_steps(found_image, known)]
    found = search_preprocessing(question, steps)
    if found.best is None or not found.certain:
        return False, f"nothing ({found.runs} runs)"
    told = f"{describe_steps(found.best.steps)} ({found.runs} runs)"
    distance = said_distance({"steps": [step.key for step in found.best.steps]}, folder / "images", inputs)
    return distance <= NAMED, f"{told}; what it says is {distance:.2%} off"


def said_distance(details: dict[str, object], images: Path, inputs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """How far what the finding says is from what the deployment made, relative to what the fault changes; the worst image."""
    from parityscope.checks.wrong_preprocessing import describe_inputs

    far = 0.0
    for number, (right, wrong) in enumerate(inputs):
        image = np.asarray(Image.open(images / f"{number:03d}.png"))
        mine = describe_inputs(details, {"images": right}, image)["images"]
        far = max(far, float(np.linalg.norm(mine - wrong) / np.linalg.norm(right - wrong)))
    return far


if __name__ == "__main__":
    main()
