"""Mistakes that people make on the command line: each is said in one line with what mends it, and nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from command_line import exit_status
from parityscope.checks import known_checks
from parityscope.cli import main
from parityscope.cli.shell.app import command
from parityscope.linting import known_rules
from parityscope.logs.pages import log_codes

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
exponential (float[1, 4] x) => (float[1, 4] y) { y = Exp(x) }"""
ASKED = "diagnose m.onnx --inputs x.npz --candidate sim:f16"

# What is typed, words of what is said, and words of the fix.
MISTAKES = [
    # the model
    ("diagnose nope.onnx --candidate sim:f16", "there is no model at nope.onnx", "check the path"),
    ("diagnose folder --candidate sim:f16", "the model is a folder, not a regular file", "give a file"),
    (
        "diagnose text.onnx --candidate sim:f16",
        "the model is damaged, or no ONNX model at all",
        "check that the download",
    ),
    ("diagnose empty.onnx --candidate sim:f16", "empty.onnx holds no graph", "give an .onnx file"),
    ("lint nope.onnx", "there is no model at nope.onnx", "check the path"),
    ("evaluate nope.onnx --inputs x.npz", "there is no model at nope.onnx", "check the path"),
    ("network nope.onnx", "there is no model at nope.onnx", "check the path"),
    ("network text.onnx", "the model is damaged, or no ONNX model at all", "check that the download"),
    # targets
    ("diagnose m.onnx --inputs x.npz", "Missing option '--candidate'", "parityscope diagnose --help"),
    ("diagnose m.onnx x.npz --inputs x.npz", "Missing option '--candidate'", "did you mean --candidate x.npz?"),
    (
        "compare m.onnx --inputs x.npz --candidate other.onnx",
        "the candidate's inputs are image, the reference's x: types and shapes do not tell which is which",
        "say it, for example --map x=image; or give the file that was made from this model",
    ),
    ("compare m.onnx --inputs x.npz --candidate x.npz", "holds the model's inputs (x)", "--inputs"),
    (
        "compare m.onnx --inputs x.npz --candidate rank.npz&map=x:q",
        "map=x:q does not go from a recorded name",
        "write map=RECORDED:MODEL",
    ),
    (
        "diagnose m.onnx --inputs x.npz --candidate simm:f16",
        "there is no backend 'simm'",
        "did you mean sim? use one of: ",
    ),
    (
        "diagnose m.onnx --inputs x.npz --candidate fp17",
        "there is no backend 'fp17'",
        "did you mean fp16? use one of: ",
    ),
    ("diagnose m.onnx --inputs x.npz --candidate sim:f17", "sim has no precision 'f17'", "f16, bf16"),
    ("diagnose m.onnx --inputs x.npz --candidate ort?modle=a", "ort has no option 'modle'", "did you mean model?"),
    ("diagnose m.onnx --inputs x.npz --candidate ort?model=a.onnx", "there is no model at a.onnx", "check the path"),
    ("diagnose m.onnx --inputs x.npz --candidate ort?threads", "'threads' in target", "backend[:precision]"),
    ("diagnose m.onnx --inputs x.npz --candidate ort?timeout=", "option 'timeout' has no value", "or leave it out"),
    ("diagnose m.onnx --inputs x.npz --candidate saved?path=nope", "nope", "give the file or folder"),
    ("diagnose m.onnx --inputs x.npz --candidate command?run=./nope", "there is no program './nope'", "give its path"),
    ("diagnose m.onnx --inputs x.npz --candidate command?run=./s.sh", "'./s.sh' is not executable", "chmod +x ./s.sh"),
    (f"{ASKED} --peer foo", "there is no backend 'foo'", "use one of: "),
    (f"{ASKED} --peer sim:f17", "sim has no precision 'f17'", "use one of: "),
    ("verify m.onnx --before ort --after nope --inputs x.npz", "there is no backend 'nope'", "use one of: "),
    ("localize m.onnx --candidate trt?engine=a.plan --inputs x.npz", "there is no engine at a.plan", "give the path"),
    # inputs
    ("diagnose m.onnx --candidate sim:f16 --inputs nope.npz", "there is no nope.npz", "give a file, a folder"),
    (
        "diagnose m.onnx --candidate sim:f16 --inputs folder",
        "there are no samples in folder",
        "give a folder of images, or of .arrow, .bin, .feather, .json, .jsonl, .npy, .npz",
    ),
    ("diagnose m.onnx --candidate sim:f16 --inputs bad.npz", "bad.npz cannot be read", "write it again"),
    (
        "diagnose m.onnx --candidate sim:f16 --inputs name.npz",
        "input 'x' is missing; the sample has 'w', 'z'",
        "called 'x'",
    ),
    ("diagnose m.onnx --candidate sim:f16 --inputs dtype.npz", "found float64 [1, 4]", ".astype(np.float32)"),
    ("diagnose m.onnx --candidate sim:f16 --inputs rank.npz", "found the shape [4]", "add the batch axis"),
    ("diagnose m.onnx --candidate sim:f16 --inputs shape.npz", "found the shape [1, 5]", "give it the shape [1, 4]"),
    # what is asked
    (f"{ASKED} --budget nope:rel_l2=0.1", "the model has no such output", "use one of: y"),
    (f"{ASKED} --budget rel_l3=0.1", "there is no metric 'rel_l3'", "rel_l2"),
    (f"{ASKED} --budget rel_l2", "'rel_l2' is not METRIC=VALUE", "--budget rel_l2=1e-3"),
    (f"{ASKED} --budget rel_l2=-1", "can never be met: rel_l2 is not negative", "--budget rel_l2=0"),
    *(
        (f"{ASKED} --budget rel_l2={number}", "is not METRIC=VALUE", "rel_l2=1e-3")
        for number in ("1e400", "nan", "1_0", "\uff11")
    ),
    (f"{ASKED} --budget :rel_l2=1", "is not METRIC=VALUE", "--budget rel_l2=1e-3"),
    (f"{ASKED} --budget cosine=-2", "is kept by everything: cosine is never below -1", "--budget cosine=0"),
    (f"{ASKED} --budget cosine=2", "can never be met: cosine is never above 1", "--budget cosine=0.5"),
    (f"{ASKED} --time inf", "--time 'inf' is not a time", "--time 60s"),
    (f"{ASKED} --memory infMiB", "--memory 'infMiB' is not a size", "--memory 512MiB"),
    (f"{ASKED} --memory 1e400GiB", "is not a size from 1MiB", "--memory 512MiB"),
    ("repair m.onnx --inputs x.npz --consent evil", "'evil' is no repair that asks for it", "raise_epsilon"),
    ("repair m.onnx --inputs x.npz --budget rel_l2=inf", "is not METRIC=VALUE", "rel_l2=1e-3"),
    ("compare open.onnx --candidate ort --shapes x:1x99999999999", "more than the 512 MiB of --memory", "--memory"),
    (f"compare open.onnx --candidate ort --shapes x:1x{'9' * 5000}", "is not name:1x3x224x224", "--shapes x:1x3"),
    ("compare deep.onnx --candidate ort", "has 65 axes, more than the 64", "fewer axes"),
    ("compare m.onnx --candidate ort --samples 9999999999", "generated samples are more than", "or fewer"),
    ("lint mute.onnx", "mute.onnx gives no output", "export it again"),
    (f"{ASKED} --declared fp17", "'fp17' is no declared arithmetic", "f16"),
    (f"{ASKED} --format htm", "there is no report format 'htm'", "html"),
    (f"{ASKED} --policy nope.toml", "there is no policy at nope.toml", "check the path"),
    (f"{ASKED} --samples 0", "0 samples cannot be judged", "--samples 1"),
    (f"{ASKED} --samples x", "Invalid value for '--samples'", "parityscope diagnose --help"),
    (f"{ASKED} --smaples 2", "No such option: --smaples", "did you mean --samples? parityscope diagnose --help"),
    ("diagnose m.onnx --inputs x.npz --candidate notes.txt", "notes.txt is a file of no kind", ".npz, .onnx"),
    (f"{ASKED} --map q=x", "the reference's graph has no tensor 'q'", "names are matched exactly; there are "),
    (f"{ASKED} --buget rel_l2=0.1", "No such option: --buget", "parityscope diagnose --help"),
    (f"{ASKED} --memory 5", "--memory '5' is not a size", "--memory 512MiB"),
    (f"{ASKED} --match nope", "the model has no such output", "use some of: y"),
    (f"{ASKED} --state a=b", "the model has no input 'b'", "x"),
    ("doctr", "No such command 'doctr'", "parityscope doctor"),
    (
        "compare m.onnx --candidate rec/again --inputs x.npz",
        "no file or folder 'rec/again'",
        "parityscope list backends",
    ),
    # where it is written
    (f"{ASKED} --study study", "a study is never overwritten", "choose another --study"),
    (f"{ASKED} --study text.onnx/s", "the study cannot be written: Not a directory", "choose another --study"),
    ("run m.onnx --inputs x.npz -o folder", "a recording is never overwritten", "choose another -o"),
    ("repair m.onnx --inputs x.npz --low f16 -o m.onnx", "m.onnx is the model itself", "choose another -o"),
    ("predict m.onnx --inputs x.npz -o out.pdf", "has no suffix", "use .html, .json, .md or .txt"),
    (f"{ASKED} --real bad.npz", "bad.npz cannot be read", "check that the file is whole"),
    # studies and codes
    ("report nope", "there is no study at nope", "`diagnose`"),
    ("report m.onnx", "m.onnx cannot be read as a study", "give the folder that it wrote"),
    ("report broken", "study.json cannot be read as a study", "run `diagnose` again"),
    ("report study", "written by a newer Parityscope: its schema is parityscope/9", "the version that wrote it"),
    ("experiment study RNG001-1", "its schema is parityscope/9", "pip install -U parityscope"),
    ("explain RNG999", "there is no check or rule 'RNG999'", "use one of: RNG001, "),
    ("explain something", "there is no check or rule 'something'", "parityscope explain, without a code"),
    ("list foo", "there is no catalogue 'foo'", "checks"),
    ("explain RNG01", "there is no check or rule 'RNG01'", "did you mean RNG001? use one of: "),
    ("list chekcs", "there is no catalogue 'chekcs'", "did you mean checks? use one of: "),
    ("lint m.onnx --formats bf61", "there is no number format 'bf61'", "did you mean bf16? use one of: "),
    ("lint m.onnx --format htlm", "has no format 'htlm'", "did you mean html? use one of: "),
    ("lint m.onnx --fromat json", "No such option: --fromat", "did you mean --format? parityscope lint --help"),
    (f"{ASKED} --budget rel_l=0.1", "there is no metric 'rel_l'", "did you mean rel_l2? use one of: "),
    ("log nope.log", "there is no log nope.log", "give the path"),
    ("pipeline nope.toml", "there is no pipeline at nope.toml", "check the path"),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    onnx.save(onnx.parser.parse_model(MODEL), folder / "m.onnx")
    for name, old, new in (
        ("open", "1, 4", "1, N"),
        ("deep", "1, 4", ", ".join(["1"] * 65)),
        ("mute", "float[1, 4] y", ""),
        ("other", "1, 4] x)", "1, 5] image)"),
    ):
        onnx.save(
            onnx.parser.parse_model(MODEL.replace(old, new).replace("(x)", "(image)" if name == "other" else "(x)")),
            folder / f"{name}.onnx",
        )
    arrays = {
        "x": {"x": np.zeros((1, 4), np.float32)},
        "name": {"z": np.zeros((1, 4), np.float32), "w": np.zeros((1, 4), np.float32)},
        "dtype": {"x": np.zeros((1, 4))},
        "rank": {"x": np.zeros(4, np.float32)},
        "shape": {"x": np.zeros((1, 5), np.float32)},
    }
    for name, held in arrays.items():
        np.savez(folder / f"{name}.npz", **held)
    for name, text in {
        "text.onnx": "hello",
        "empty.onnx": "",
        "bad.npz": "PK",
        "s.sh": "echo",
        "notes.txt": "hi",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, text in {"folder": "", "study": json.dumps({"schema": "parityscope/9"}), "broken": "{bad"}.items():
        (folder / name).mkdir()
        if text:
            (folder / name / "study.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("typed", "said", "fix"), MISTAKES, ids=[typed for typed, _, _ in MISTAKES])
def test_a_mistake_is_said_with_its_fix(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, said: str, fix: str
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")
    before = sorted(str(path) for path in desk.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert told.out == ""
    first, *rest = told.err.splitlines()
    assert first.startswith("parityscope: ")
    assert said in told.err
    (last,) = [line for line in rest if line.startswith("  fix:")]
    assert fix in last
    assert len(rest) <= 2  # where, if it says more than the first line, and the fix
    assert sorted(str(path) for path in desk.rglob("*")) == before


def test_a_code_may_be_typed_in_small_letters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "rng001"])
    assert ended.value.code == 0
    assert "A parameter does not fit" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["WORST", "SURE", "CLAIM"])
def test_a_word_of_a_report_has_its_page(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("explain", word.lower()) == 0
    page = capsys.readouterr().out
    assert "What it says:" in page
    assert "What to do:" in page
    assert exit_status("explain") == 0
    assert f"  {word:<6}  {page.partition('.')[0]}" in capsys.readouterr().out.splitlines()


def test_without_a_code_the_whole_catalogue_stands_in_families(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    codes = [line.split()[0] for line in lines if line.startswith("  ")]
    words = {"WORST", "SURE", "CLAIM"}
    assert set(codes) == {*known_checks(), *known_rules(), *log_codes(), *words}
    assert len(codes) == len(set(codes))
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert len(headings) == len({code[:3] for code in codes if code not in words}) + 1
    assert not [line for line in headings if len(line) == 3]  # every family has its words


def test_without_a_kind_every_catalogue_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list"])
    told = capsys.readouterr().out
    for kind in ("Backends", "Checks", "Rules", "Metrics", "Repairs", "Formats"):
        assert f"\n{kind}\n" in f"\n{told}"
    assert "  openvino" in told


@pytest.mark.parametrize(("typed", "meant"), [("diagnos", "parityscope diagnose"), ("verfy", "parityscope verify")])
def test_a_mistyped_command_is_told_what_it_was_meant_to_be(
    capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([typed])
    assert ended.value.code == 2
    assert f"fix:   {meant}" in capsys.readouterr().err


def test_an_option_that_is_given_and_empty_is_not_one_that_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--inputs "$DATA"` of a variable that is not set must not compare on generated samples."""
    monkeypatch.setenv("PARITYSCOPE_NO_FORK", "1")  # nothing heavy is loaded: it is refused before
    told = 0
    for name, verb in vars(command())["commands"].items():
        for option in verb.params:
            if option.param_type_name != "option" or option.is_flag:
                continue
            longest = max(option.opts, key=len)
            for words in ((longest, ""), (f"{longest}=",)):
                assert exit_status(name, "m.onnx", *words) == 2
                said = capsys.readouterr().err
                assert said.startswith(f"parityscope: {longest} is given an empty value\n  fix:   "), said
                told += 1
    assert told > 200
