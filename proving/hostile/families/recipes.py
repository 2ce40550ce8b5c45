"""Recipes: how images are prepared, pipelines of stages, and plans of a repair; and the images themselves."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from proving.hostile.cases import ANSWERED, ANY, REFUSED, Ask, Draw, Family
from proving.hostile.families.npz import archive, described
from proving.hostile.making import NAMES, SPECIAL, marking_source, save, special_file, write_model, write_samples

if TYPE_CHECKING:
    from pathlib import Path

_LATER = ("recording", "fixed")
_GOOD = {
    "size": "[8, 8]", "fit": '"stretch"', "kernel": '"bilinear"', "channels": '"RGB"', "scale": "255", "mean": "[0.5, 0.5, 0.5]",
    "deviation": "[0.5, 0.5, 0.5]", "layout": '"NCHW"',
}  # fmt: skip


def _recipe(folder: Path, **changes: str) -> None:
    held = _GOOD | changes
    (folder / "prepare.toml").write_text("".join(f"{key} = {value}\n" for key, value in held.items() if value))


def _network(folder: Path) -> None:
    """A model of one image [1, 3, 8, 8]."""
    weights = np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0)], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx")


def _photos(folder: Path, count: int = 2) -> Path:
    place = folder / "photos"
    place.mkdir(exist_ok=True)
    pixels = np.random.default_rng(5).integers(0, 256, size=(count, 24, 32, 3), dtype=np.uint8)
    for number in range(count):
        Image.fromarray(pixels[number]).save(place / f"{number}.png")
    return place


def _about(folder: Path, draw: Draw, recipe: str = "prepare.toml") -> tuple[str, ...]:
    """A command line that prepares images."""
    _network(folder)
    if not (folder / "photos").exists():
        _photos(folder)
    (folder / "right.toml").write_text("".join(f"{key} = {value}\n" for key, value in _GOOD.items()))
    return draw.turn((
        ("run", "model.onnx", "--inputs", "photos", "--preprocess", recipe, "-o", "recording"),
        ("compare", "model.onnx", "--candidate", "sim:f16", "--inputs", "photos", "--preprocess", recipe),
        ("preprocessing", recipe, "right.toml", "--images", "photos"), ("preprocessing", "right.toml", recipe, "--images", "photos"),
        ("predict", "model.onnx", "--inputs", "photos", "--preprocess", recipe, "--formats", "bf16"),
    ))  # fmt: skip


def keys(folder: Path, draw: Draw) -> Ask:
    """Keys and values that no recipe has."""
    _recipe(folder, **draw.turn((
        {"size": "[0, 8]"}, {"size": "[-8, 8]"}, {"size": "8"}, {"size": "[8]"}, {"size": "[8, 8, 8]"}, {"size": '"8x8"'}, {"size": "[8.5, 8]"}, {"size": "[]"},
        {"size": "[true, 8]"}, {"fit": '"squeeze"'}, {"fit": "3"}, {"kernel": '"evil"'}, {"channels": '"RGBA"'}, {"scale": "0"}, {"scale": "nan"},
        {"scale": '"255"'}, {"mean": "[1, 2]"}, {"mean": "[nan, 0, 0]"}, {"deviation": "[0, 1, 1]"}, {"deviation": "[inf, 1, 1]"},
        {"layout": '"CHWN"'}, {"evil": "1"}, {"shorter": "-1", "fit": '"shorter"'}, {"fill": "[1, 2]", "fit": '"letterbox"'}, {"size": ""}, {"whole": '"no"'},
        {"fill": "[300, 0, -1]", "fit": '"letterbox"'}, {"corner": "3", "fit": '"letterbox"'}, {"mean": '["a", "b", "c"]'}, {"scale": "-1e999"},
    )))  # fmt: skip
    words = _about(folder, draw)
    return Ask(words, REFUSED, writes=_LATER)


def enormous(folder: Path, draw: Draw) -> Ask:
    """Sizes that no memory holds, or that take for ever."""
    _recipe(folder, **draw.turn((
        {"size": "[1000000, 1000000]"}, {"size": "[1, 2000000000]"}, {"size": f"[{2**63}, 1]"}, {"shorter": "100000000", "fit": '"shorter"'},
        {"size": "[60000, 60000]", "kernel": '"lanczos-antialias"'}, {"size": "[" + "9" * 5000 + ", 8]"}, {"shorter": "1", "fit": '"shorter"'},
        {"size": "[40000, 40000]", "fit": '"letterbox"'}, {"size": "[30000, 30000]", "fit": '"central"'},
    )))  # fmt: skip
    words = _about(folder, draw)
    return Ask(words, REFUSED | {1} if words[0] == "preprocessing" else REFUSED, writes=_LATER)


def no_recipe(folder: Path, draw: Draw) -> Ask:
    """Files that are none."""
    (folder / "prepare.toml").write_bytes(draw.turn((
        b"", b"size = [", b"a = " + b"[" * 50_000, b"\xff\xfe", b"\0" * 50, b"size = [8, 8]\nsize = [8, 8]", b"[recipe]\nsize = [8, 8]", b"{}", draw.noise(99),
        b'size = [8, 8]\nkernel = "\\u001b[2J"', b"steps = 'evil.py:run'", b"a" + b".a" * 50_000 + b" = 1", b"size = " + b"9" * 99_999,
    )))  # fmt: skip
    return Ask(_about(folder, draw), REFUSED, writes=_LATER)


def special(folder: Path, draw: Draw) -> Ask:
    """No regular file."""
    special_file(folder / "prepare.toml", draw.turn(SPECIAL))
    return Ask(_about(folder, draw), REFUSED, writes=_LATER, unprivileged=True)


def _png(width: int, height: int, rows: bytes = b"", *, depth: int = 8, kind: int = 2) -> bytes:
    """A PNG of any size at all."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def images(folder: Path, draw: Draw) -> Ask:
    """Images that are none, are cut off, or unpack to gigabytes."""
    _recipe(folder)
    place = _photos(folder)
    whole = (place / "1.png").read_bytes()
    gif = io.BytesIO()
    Image.new("L", (20, 20)).save(gif, "GIF")
    name, content = draw.turn((
        ("2.png", b""), ("2.png", whole[:60]), ("2.png", whole[:-20]), ("2.png", _png(50_000, 50_000)), ("2.png", _png(30_000, 30_000, b"\0" * (30_000 * 3000))),
        ("2.png", _png(0, 0)), ("2.png", _png(2**31 - 1, 2**31 - 1)), ("2.png", _png(1, 2_000_000, b"\0" * 100)), ("2.jpg", b"\xff\xd8\xff\xe0" + draw.noise(99)),
        ("2.jpg", b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>"), ("2.png", b"P6 99999 99999 255\n"), ("2.tif", b"II*\0\xff\xff\xff\xff"),
        ("2.png", b"GIF89a" + b"\xff" * 30), ("2.bmp", b"BM" + b"\xff" * 80), ("2.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), ("2.png", b"\0" * 999),
        ("2.webp", b"RIFF\xff\xff\xff\xffWEBPVP8 " + draw.noise(60)), ("2.ppm", b"P6 9 9 255\n"), ("2.ico", b"\0\0\1\0" + b"\xff" * 40), ("2.txt", b"not an image"),
    ))  # fmt: skip
    (place / name).write_bytes(content)
    # A file of no known kind is no image, and whoever has it lie there is answered; one among others that cannot be read is told.
    return Ask(_about(folder, draw), REFUSED | {3} if name[2:] not in {"eps", "ico", "txt"} else ANSWERED, writes=_LATER)


def special_image(folder: Path, draw: Draw) -> Ask:
    """An image that is no regular file."""
    _recipe(folder)
    special_file(_photos(folder) / "2.png", draw.turn(SPECIAL))
    return Ask(_about(folder, draw), REFUSED, writes=_LATER, unprivileged=True)


def odd_images(folder: Path, draw: Draw) -> Ask:
    """Images that are right, of unusual kinds: they are prepared, or refused with a reason."""
    _recipe(folder)
    place = _photos(folder)
    mode = draw.turn(("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "I;16", "F", "tall", "wide", "one"))
    size = {"tall": (1, 30_000), "wide": (30_000, 1), "one": (1, 1)}.get(mode, (16, 12))
    picture = Image.new("RGB" if mode in {"tall", "wide", "one"} else mode, size)
    suffix = "tif" if mode in {"CMYK", "YCbCr", "F"} else "png"
    picture.save(place / f"2.{suffix}")
    if draw.turn((False, True)):
        turned = Image.Exif()
        turned[0x0112] = draw.pick((6, 99, 0))
        picture.convert("RGB").save(place / "3.jpg", exif=turned)
    return Ask(_about(folder, draw), ANY, writes=_LATER)


def image_names(folder: Path, draw: Draw) -> Ask:
    """Names of images that a terminal or a page would obey."""
    _recipe(folder)
    place = _photos(folder)
    name = draw.turn([name for name in NAMES if "/" not in name and "\0" not in name and len(name) < 200])
    (place / "1.png").rename(place / f"{name}.png")
    return Ask(_about(folder, draw), ANY, writes=_LATER)


def functions(folder: Path, draw: Draw) -> Ask:
    """Functions that the user names: there is none, it fails, or it gives what no model takes."""
    (folder / "f.py").write_text(
        "import os, sys\ndef fails(i): raise ValueError('\\x1b[2J' + 'x' * 9000)\ndef none(i): return None\ndef text(i): return 'a'\ndef leaves(i): os._exit(0)\n"
        "def exits(i): sys.exit(0)\ndef names(i): return {'z': i}\ndef deep(i): return deep(i)\ndef interrupts(i): raise KeyboardInterrupt\n"
        "def mixed(i): return [[1], [1, 2]]\nnumber = 3\ndef two(a, b): return a\n",
    )
    (folder / "bad.py").write_text("def broken(:\n")
    (folder / "raises.py").write_text("raise SystemExit(0)\n")
    which = draw.turn((
        "f.py:fails", "f.py:none", "f.py:text", "f.py:leaves", "f.py:exits", "f.py:names", "f.py:deep", "f.py:mixed", "f.py:number", "f.py:two", "f.py:nope",
        "nope.py:f", "f.py:", ":f", "f.py", "bad.py:broken", "raises.py:f", "f.py:fails:x", "f.py:__import__", "photos:f",
    ))  # fmt: skip
    words = _about(folder, draw, which)
    return Ask(words, REFUSED, writes=(*_LATER, "__pycache__"), runs=True)


def _pipeline(folder: Path, draw: Draw, text: str | bytes, right: frozenset[int] = REFUSED, **more: bool) -> Ask:
    write_model(folder)
    write_samples(folder)
    (folder / "chain.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    words = ("pipeline", "chain.toml", *draw.turn(((), ("--format", "json"), ("--samples", "1"))))
    return Ask(words, right, writes=(*_LATER, "__pycache__"), **more)


_STAGE = '[[stage]]\nname = "one"\nmodel = "model.onnx"\ncandidate = "sim:f16"\n'


def pipelines(folder: Path, draw: Draw) -> Ask:
    """Pipelines that cannot be run as they are written."""
    text = draw.turn((
        "", 'inputs = "samples"\n', 'inputs = "samples"\nstage = 3\n', 'inputs = "nope"\n' + _STAGE, "inputs = 3\n" + _STAGE, 'evil = 1\ninputs = "samples"\n' + _STAGE,
        'inputs = "samples"\n' + _STAGE + _STAGE, 'inputs = "samples"\n' + _STAGE.replace("sim:f16", "evil"), 'inputs = "samples"\n' + _STAGE + "evil = 1\n",
        'inputs = "samples"\n' + _STAGE.replace('name = "one"\n', ""), 'inputs = "samples"\n' + _STAGE.replace("model.onnx", "nope.onnx"), "a = " + "[" * 50_000,
        'inputs = "samples"\n' + _STAGE + 'feeds = { x = "one.y" }\n', 'inputs = "samples"\n' + _STAGE + 'feeds = { x = "data.nope" }\n', "\x1b[2J",
        'inputs = "samples"\n' + _STAGE + "feeds = 3\n", 'inputs = "samples"\n' + _STAGE + 'glue = "nope.py:f"\n', 'inputs = "samples"\n' + _STAGE + "glue = 3\n",
        'inputs = "samples"\n' + _STAGE + 'policy = "nope.toml"\n', 'inputs = "samples"\n' + _STAGE + 'declared = "evil"\n', 'inputs = ""\n' + _STAGE,
        'inputs = "samples"\n' + _STAGE + 'reference = "evil"\n', 'inputs = "samples"\nstacked = "yes"\n' + _STAGE, 'inputs = "samples"\n' + _STAGE.replace('"one"', '""'),
        'inputs = "samples"\n' + _STAGE.replace('"one"', '"../../outside/ran"') + 'model = "x"\n', 'inputs = "/dev/zero"\n' + _STAGE, 'inputs = "samples"\n[stage]\nname = "a"\n',
    ))  # fmt: skip
    return _pipeline(folder, draw, text)


def special_pipeline(folder: Path, draw: Draw) -> Ask:
    """A pipeline in no regular file."""
    ask = _pipeline(folder, draw, "")
    (folder / "chain.toml").unlink()
    special_file(folder / "chain.toml", draw.turn(SPECIAL))
    return Ask(ask.words, REFUSED, unprivileged=True)


def glue(folder: Path, draw: Draw) -> Ask:
    """Glue that fails, ends the process, or gives what no model takes."""
    (folder / "g.py").write_text(
        "import os, sys, numpy as np\ndef fails(o, i): raise ValueError('\\x1b[2J')\ndef leaves(o, i): os._exit(0)\ndef exits(o, i): sys.exit(0)\n"
        "def none(o, i): return None\ndef empty(o, i): return []\ndef names(o, i): return {'z': np.zeros(1)}\ndef shape(o, i): return {'x': np.zeros((9, 9))}\n"
        "def many(o, i): return [{'x': np.zeros((1, 8), np.float32)}] * 3 if False else [{}]\ndef text(o, i): return 'a'\n",
    )
    which = draw.turn(("fails", "leaves", "exits", "none", "names", "shape", "many", "text", "nope", "empty"))
    text = 'inputs = "samples"\n' + _STAGE + f'glue = "g.py:{which}"\n'
    return _pipeline(folder, draw, text, ANY - {0, 1} if which == "empty" else REFUSED, runs=True)


def stage_names(folder: Path, draw: Draw) -> Ask:
    """Names of stages that a terminal, a page or a path would obey."""
    name = draw.turn([name for name in NAMES if "\0" not in name])
    escaped = "".join(f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08X}" for c in name)
    return _pipeline(folder, draw, 'inputs = "samples"\n' + _STAGE.replace('"one"', f'"{escaped}"'), ANY)


def plans(folder: Path, draw: Draw) -> Ask:
    """Plans of a repair that are none."""
    write_model(folder)
    write_samples(folder)
    (folder / "evil.py").write_text(marking_source(folder))
    content = draw.turn((
        b"", b"low = ", b"\xff", b"a = " + b"[" * 50_000, b'low = "f16"\n[[keep]]\nnode = "nope"\n', b'schema = "evil"\n', b"keep = 3\n", b'low = "evil"\n', b"\0" * 99,
        b'schema = "parityscope-plan/2"\n', b'schema = "parityscope-plan/2"\n[end]\n', b'schema = "parityscope-plan/2"\nlow = ["f16"]\nkeep = ["nope"]\n[end]\n', b'schema = "parityscope-plan/2"\nmodel = "evil.py:run"\n[end]\n',
        b'[[budget]]\nmetric = "evil.py:run"\nlimit = 1\n', b"[[fp8]]\nnode = 3\n", b'[[edit]]\nrepair = "evil"\n', b'"\\u001b[2J" = 1\n',
    ))  # fmt: skip
    (folder / "plan.toml").write_bytes(content)
    return Ask(("repair", "model.onnx", "--plan", "plan.toml", "--inputs", "samples", "-o", "fixed.onnx"), REFUSED, writes=("fixed",))


def metrics(folder: Path, draw: Draw) -> Ask:
    """Metrics of one's own that fail, and names that are none."""
    write_model(folder)
    write_samples(folder)
    (folder / "m.py").write_text(
        "import os, numpy as np\ndef fails(*a): raise ValueError('\\x1b[2J')\ndef nan(*a): return float('nan')\ndef none(*a): return None\ndef text(*a): return 'a'\n"
        "def leaves(*a): os._exit(0)\ndef long(*a): return np.zeros(99)\ndef boom(*a): raise SystemExit(0)\n",
    )
    which = draw.turn((
        "m.py:fails", "m.py:nan", "m.py:none", "m.py:text", "m.py:leaves", "m.py:long", "m.py:boom", "m.py:nope", "nope.py:f", "evil", "top1?evil=1", "top1?",
        "topk_agreement?k=0", "topk_agreement?k=-1", "topk_agreement?k=evil", "topk_agreement?k=" + "9" * 40, "m.py:nan?better=evil", "\x1b[31m", "", "miou?ignore=x",
    ))  # fmt: skip
    words = ("verify", "model.onnx", "--before", "sim:f16", "--after", "ort", "--inputs", "samples", "--no-timing", "--metric", which)
    return Ask(words, ANSWERED if which == "top1?" else REFUSED, writes=("__pycache__",), runs=True)


def right(folder: Path, draw: Draw) -> Ask:
    """Recipes and pipelines that are right."""
    which = draw.turn(("recipe", "least", "pipeline", "letterbox", "unicode"))
    if which == "pipeline":
        return _pipeline(folder, draw, 'inputs = "samples"\n' + _STAGE, ANSWERED)
    if which == "least":
        _recipe(folder, **(dict.fromkeys(_GOOD, "") | {"size": "[8, 8]"}))
    elif which == "letterbox":
        _recipe(folder, fit='"letterbox"', fill="[114, 114, 114]", corner="true")
    else:
        _recipe(folder)
    if which == "unicode":
        (folder / "prepare.toml").rename(folder / "рецепт.toml")
    words = _about(folder, draw, "рецепт.toml" if which == "unicode" else "prepare.toml")
    return Ask(words, ANSWERED, writes=_LATER)


def saved_steps(folder: Path, draw: Draw) -> Ask:
    """Something else where images are meant."""
    _recipe(folder)
    place = folder / "photos"
    which = draw.turn(("empty", "file", "archive", "nested", "missing", "hidden"))
    if which not in {"missing", "file"}:
        place.mkdir()
    if which == "file":
        place.write_bytes(b"x")
    elif which == "archive":
        archive(place / "0.npz", {"x.npy": described("'|O'")})
    elif which == "nested":
        (place / "a").mkdir()
        Image.new("RGB", (9, 9)).save(place / "a" / "0.png")
    elif which == "hidden":
        Image.new("RGB", (9, 9)).save(place / ".0.png")
    _network(folder)
    (folder / "right.toml").write_text("".join(f"{key} = {value}\n" for key, value in _GOOD.items()))
    words = draw.turn((
        ("run", "model.onnx", "--inputs", "photos", "--preprocess", "prepare.toml", "-o", "recording"),
        ("preprocessing", "prepare.toml", "right.toml", "--images", "photos"),
    ))
    return Ask(words, ANSWERED if which == "nested" else REFUSED, writes=_LATER)  # folders in it are classes


FAMILY = Family("recipes", (
    keys, enormous, no_recipe, special, images, special_image, odd_images, image_names, functions, pipelines, special_pipeline, glue, stage_names, plans,
    metrics, right, saved_steps, pipelines, images, keys,
))  # fmt: skip
