"""The evaluator itself: stretches, what is written into them, control flow, types, chance, sessions and threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper, parser

from parityscope.arithmetic.simulation import arrange_precision
from parityscope.case.model import load_model
from parityscope.errors import ParityError
from parityscope.evaluation.evaluating import evaluate_worlds, run_world, run_worlds
from parityscope.evaluation.program import Program, compile_program, keys_of, prepared_graph, program_of, wide_program
from parityscope.evaluation.rounding import FloatRounding
from parityscope.evaluation.sessions import LIMIT, Sessions
from parityscope.evaluation.simulating import simulated_world
from parityscope.evaluation.worlds import World
from parityscope.evaluation.writing import written_rows
from parityscope.memory import resident_memory

_RANDOM = np.random.default_rng(7)


def _model(text: str, **weights: np.ndarray) -> ir.Model:
    proto = parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return ir.from_proto(proto)


def _program(text: str, **weights: np.ndarray) -> Program:
    return compile_program(_model(text, **weights))


def _layers(count: int) -> ir.Model:
    """Layers of four small nodes each."""
    body = "".join(
        f"m{at} = MatMul(y{at}, w{at}) s{at} = Sub(m{at}, b{at}) t{at} = Tanh(s{at}) y{at + 1} = Mul(t{at}, s{at})"
        for at in range(count)
    )
    weights = {f"w{at}": _RANDOM.standard_normal((8, 8)).astype(np.float32) for at in range(count)}
    weights |= {f"b{at}": _RANDOM.standard_normal(8).astype(np.float32) for at in range(count)}
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] y0) => (float[2,8] y{count}) {{ {body} }}'
    return _model(text, **weights)


_INPUT = _RANDOM.standard_normal((2, 8)).astype(np.float32)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_stretches_give_what_their_steps_give(name: str) -> None:
    plain = World(name="plain", program=compile_program(_layers(20)))
    low = simulated_world("low", arrange_precision(_layers(20), name))
    sessions = Sessions()
    passes = [run_worlds([plain, low], {"y0": _INPUT}, ["y12", "y20"], sessions) for _ in range(4)]
    assert len(sessions.joins) > 2
    for later in passes[1:]:
        for world in (0, 1):
            for site in ("y12", "y20"):
                np.testing.assert_array_equal(passes[0][world][site], later[world][site])
    assert not np.array_equal(passes[0][0]["y20"], passes[0][1]["y20"])


def test_what_somebody_watches_or_changes_is_in_no_stretch() -> None:
    program = compile_program(_layers(6))
    sessions = Sessions()
    plain, moved = World(name="plain", program=program), World(name="moved", program=program, instead={"t3": _nothing})
    for _ in range(4):
        moments = list(evaluate_worlds([plain, moved], {"y0": _INPUT}, ["s2", "y6"], sessions))
        assert [moment.sites for moment in moments] == [("s2",), ("y6",)]
    found = run_worlds([plain, moved], {"y0": _INPUT}, ["s3", "t3", "y6"], sessions)
    np.testing.assert_array_equal(found[0]["s3"], found[1]["s3"])
    assert not found[1]["t3"].any()
    assert found[0]["t3"].any()


def _nothing(inputs: object) -> list[np.ndarray]:
    del inputs
    return [np.zeros((2, 8), np.float32)]


def test_large_tensors_stay_out_of_stretches() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] z) { y = Tanh(x) w = Exp(y) z = Relu(w) }'
    )
    world, sessions = World(name="plain", program=_program(text)), Sessions()
    for _ in range(4):
        run_world(world, {"x": np.ones(1 << 15, np.float32)}, ["z"], sessions)
    assert not len(sessions.joins)
    again = World(name="again", program=world.program)
    for _ in range(4):
        run_world(again, {"x": np.ones(8, np.float32)}, ["z"], sessions)
    assert len(sessions.joins) == 1


_LOOP = """<ir_version: 8, opset_import: ["" : 19]> g (int64 count, float[4] x) => (float[4] last, float[n,4] every)
{
  go = Constant <value = bool {1}> ()
  last, every = Loop (count, go, x) <body = b (int64 i, bool c, float[4] before) => (bool on, float[4] after, float[4] seen)
  {
    half = Constant <value = float {0.7}> ()
    scaled = Mul (before, half)
    after = Sub (scaled, x)
    seen = Tanh (after)
    on = Identity (c)
  }>
}"""


@pytest.mark.parametrize("name", ["tf32", "f16", "bf16"])
def test_a_loop_in_which_a_world_rounds_runs_as_one_node(name: str) -> None:
    found = arrange_precision(_model(_LOOP), name if name != "tf32" else "f16", bounded=name != "tf32")
    feeds = {"count": np.array(9), "x": _RANDOM.standard_normal(4).astype(np.float32)}
    sessions = Sessions()
    low = simulated_world("low", found)
    whole = run_world(low, feeds, ["last", "every"], sessions)
    assert len(sessions) == 1
    apart = run_world(low, feeds, ["last", "every", "scaled"], sessions)
    assert len(sessions) > 1
    for site in ("last", "every"):
        np.testing.assert_array_equal(whole[site], apart[site])
    exact = run_world(World(name="plain", program=compile_program(found.model)), feeds, ["last"])
    assert not np.array_equal(exact["last"], whole["last"])


_IDENTITIES = """<ir_version: 9, opset_import: ["" : 19]>
g (float[n] x) => (float[n] z) <float[n] y> { y = Identity(x) w = Identity(y) z = Identity(w) }"""


def test_rounding_in_a_session_is_the_compiled_loops() -> None:
    bits = np.concatenate([np.arange(0, 1 << 32, 65521, dtype=np.uint64), [0x80000000, 0x7F800000, 0xFF800000]])
    array = bits.astype(np.uint32).view(np.float32)
    for name in ("f16", "bf16"):
        rounding = FloatRounding(name)
        world = World(name="low", program=_program(_IDENTITIES), stored={"y": rounding})
        sessions = Sessions()
        for size in (4, 4, array.size):  # small tensors open the stretch, in which large ones are then run
            found = run_world(world, {"x": array[:size]}, ["z"], sessions)["z"]
        assert len(sessions.joins) == 1
        np.testing.assert_array_equal(found, rounding(array))


def test_the_splitting_for_tf32_is_exact_and_guarded() -> None:
    patterns = np.random.default_rng(2).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    largest = np.finfo(np.float32).max
    edges = [largest, -largest, -3.4e38, np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**113, -(2.0**113), 2.0**114]
    ties = (np.arange(2049, 4097, 2) * 2.0**-12 + 2.0**-13).astype(np.float32)
    values = np.concatenate([patterns, np.array(edges, np.float32), ties])
    values = np.concatenate([values, (values.view(np.uint32) + np.uint32(1)).view(np.float32)])
    rounding, sessions = FloatRounding("tf32"), Sessions()
    world = World(name="low", program=_program(_IDENTITIES), stored={"y": rounding})
    for size in (4, 4, values.size):  # small tensors open the stretch, in which large ones are then run
        found = run_world(world, {"x": values[:size]}, ["z"], sessions)["z"]
    assert len(sessions.joins) == 1
    size = np.abs(values)
    inside = (size >= 2.0**-126) & (size < 2.0**113)
    np.testing.assert_array_equal(found[inside].view(np.uint32), rounding(values)[inside].view(np.uint32))
    beyond = size >= 2.0**113
    np.testing.assert_array_equal(found[beyond], values[beyond])
    zero = size == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(values[zero]))
    assert np.isnan(found[np.isnan(values)]).all()
    assert np.abs(found[size < 2.0**-126].astype(np.float64) - values[size < 2.0**-126]).max() <= 2.0**-137


_OPTIONAL = """<ir_version: 8, opset_import: ["" : 15]> g (float[3] x) => (float[3] z)
{
  y = Tanh (x)
  held = Optional (y)
  there = OptionalGetElement (held)
  z = Exp (there)
}"""


def test_a_node_that_cannot_run_alone_runs_in_the_smallest_stretch_that_can() -> None:
    world, sessions = World(name="plain", program=_program(_OPTIONAL)), Sessions()
    x = np.array([0.1, -2.0, 3.0], np.float32)
    moments = list(evaluate_worlds([world], {"x": x}, ["y", "z"], sessions))
    assert [moment.sites for moment in moments] == [("y",), ("z",)]
    assert list(sessions.together[world.program].values()) in ([0], [1])
    np.testing.assert_array_equal(
        run_world(world, {"x": x}, ["z"], sessions)["z"], run_world(world, {"x": x}, ["z"])["z"]
    )
    expected = np.exp(np.tanh(x))
    np.testing.assert_allclose(run_world(world, {"x": x}, ["z"], sessions)["z"], expected, rtol=1e-6)


@pytest.mark.parametrize("changed", ["order", "w"])
def test_a_weight_that_is_drawn_anew_is_that_of_its_draw_in_a_stretch_too(changed: str) -> None:
    draws = {
        "order": [np.random.default_rng(seed).permutation(8).astype(np.int64) for seed in range(5)],
        "w": [np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32) for seed in range(5)],
    }[changed]
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x) => (float[2,8] y) '
        "{ a = Neg(x) b = Gather<axis = 1>(a, order) y = MatMul(b, w) }"
    )
    weights = {"order": np.arange(8), "w": np.eye(8, dtype=np.float32)}
    program = _program(text, **weights)
    number = 0
    place = next((step.key, 1) for step in program.steps if changed in step.inputs)
    world, sessions = World(name="drawn", program=program, taken={place: lambda _: draws[number]}), Sessions()
    for number, draw in enumerate(draws):  # noqa: B007 - the world reads it
        sessions.forget_weights()
        found = run_world(world, {"x": _INPUT}, ["y"], sessions)["y"]
        drawn = weights | {changed: draw}
        np.testing.assert_allclose(found, -_INPUT[:, drawn["order"]] @ drawn["w"], rtol=1e-5, atol=1e-6)
    assert len(sessions.joins) == 1


def test_a_node_that_nothing_can_run_is_named() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17, "shop" : 1]> g (float[3] x) => (float[3] z) { y = Tanh(x) z = shop.Own(y) }'
    with pytest.raises(ParityError, match="Own"):
        run_world(World(name="plain", program=_program(text)), {"x": np.zeros(3, np.float32)}, ["z"])


def test_a_world_that_gives_another_shape_is_one_error_that_names_the_site() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, float[4] w) => (float[4] z) { y = Exp(x) z = Add(y, w) }'
    program, feeds = _program(text), {"x": np.ones(4, np.float32), "w": np.ones(4, np.float32)}
    for change in (lambda array: array[:-1], lambda array: array.astype(np.float64)):
        with pytest.raises(ParityError, match="'y'"):
            run_world(World(name="other", program=program, stored={"y": change}), feeds, ["z"])
    taken = World(name="other", program=program, taken={(program.steps[1].key, 1): lambda array: array[:-1]})
    with pytest.raises(ParityError, match="'w'"):
        run_world(taken, feeds, ["z"])


_COUNTING = """<ir_version: 8, opset_import: ["" : 19]>
g (int64 count, float limit, float[4] x) => (float[4] last, float[n,4] every)
{
  go = Constant <value = bool {1}> ()
  last, every = Loop (count, go, x) <body = b (int64 i, bool c, float[4] before) => (bool on, float[4] after, float[4] seen)
  {
    number = Cast <to = 1> (i)
    after = Add (before, number)
    on = Less (number, limit)
    seen = Tanh (after)
  }>
}"""


@pytest.mark.parametrize(("count", "limit", "rounds"), [(700, 1e9, 700), (700, 300.0, 301), (0, 5.0, 0)])
def test_a_loop_is_looked_into_some_iterations_at_a_time(count: int, limit: float, rounds: int) -> None:
    program = _program(_COUNTING)
    feeds = {"count": np.array(count), "limit": np.array(limit, np.float32), "x": np.zeros(4, np.float32)}
    worlds = [World(name="plain", program=program), World(name="more", program=program, feeds={"x": _INPUT[0, :4]})]
    sessions = Sessions()
    seen = []
    for moment in evaluate_worlds(worlds, feeds, ["last", "every", "after", "number"], sessions):
        if moment.iteration:
            seen.append((moment.iteration[0], moment.sites))
            number = moment.iteration[0]
            if moment.sites == ("after",):
                np.testing.assert_array_equal(moment.stored("plain", "after"), [number * (number + 1) // 2] * 4)
        else:
            whole = run_worlds(worlds, feeds, ["last", "every"])
            for world, values in zip(worlds, whole, strict=True):
                for site in moment.sites:
                    np.testing.assert_array_equal(moment.stored(world.name, site), values[site])
    assert seen == [(at, sites) for at in range(rounds) for sites in (("number",), ("after",))]
    assert len(sessions) < 8


def test_of_what_a_world_rounds_inside_a_loop_both_are_given_and_of_all_else_one() -> None:
    program = _program(_COUNTING)
    plain = World(name="plain", program=program)
    low = World(name="low", program=program, stored={"after": FloatRounding("f16")})
    loop = next(step for step in program.steps if step.bodies)
    for world, given in (
        (plain, [("after", False), ("number", False)]),
        (low, [("after", False), ("after", True), ("number", False)]),
    ):
        rows = written_rows(world, program, loop, ["after", "number"])
        assert rows is not None
        assert [(one.site, one.register) for one in rows.given] == given
    feeds = {"count": np.array(300), "limit": np.array(1e9, np.float32), "x": _INPUT[0, :4]}
    state = _INPUT[0, :4]
    for moment in evaluate_worlds([plain, low], feeds, ["after"]):
        exact = (state + np.float32(moment.iteration[0])).astype(np.float32)
        np.testing.assert_array_equal(moment.computed("low", "after"), exact)
        state = moment.stored("low", "after")
        np.testing.assert_array_equal(state, exact.astype(np.float16).astype(np.float32))


_SCANNING = """<ir_version: 8, opset_import: ["" : 19]> g (float[2] x, float[9,2] rows) => (float[2] last, float[2,9] every)
{
  last, every = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1], scan_output_directions = [1],
  body = b (float[2] before, float[2] row) => (float[2] after, float[2] seen)
  {
    after = Sub (row, before)
    seen = Tanh (after)
  }> (x, rows)
}"""


def test_a_scan_backwards_is_looked_into() -> None:
    rows, x = _RANDOM.standard_normal((9, 2)).astype(np.float32), np.ones(2, np.float32)
    world = World(name="plain", program=_program(_SCANNING))
    found, state = {}, x
    for moment in evaluate_worlds([world], {"x": x, "rows": rows}, ["after", "every", "last"]):
        if moment.iteration:
            state = rows[8 - moment.iteration[0]] - state
            np.testing.assert_array_equal(moment.stored("plain", "after"), state)
        else:
            found.update({site: moment.stored("plain", site) for site in moment.sites})
    np.testing.assert_array_equal(found["last"], state)
    np.testing.assert_array_equal(found["every"], run_world(world, {"x": x, "rows": rows}, ["every"])["every"])
    assert found["every"].shape == (2, 9)


_CHANCE = """<ir_version: 8, opset_import: ["" : 19]> g (int64 count, float[4] x) => (float[4] last, float[4] y)
{
  drawn = RandomNormal <shape = [4]> ()
  y = Add (x, drawn)
  go = Constant <value = bool {1}> ()
  last = Loop (count, go, x) <body = b (int64 i, bool c, float[4] before) => (bool on, float[4] after)
  {
    inner = RandomNormal <shape = [4]> ()
    after = Add (before, inner)
    on = Identity (c)
  }>
}"""


def test_chance_falls_once_for_all_worlds_and_anew_at_each_iteration() -> None:
    program = _program(_CHANCE)
    ones = np.ones(4, np.float32)
    worlds = [World(name="plain", program=program), World(name="more", program=program, feeds={"x": ones})]
    feeds = {"count": np.array(3), "x": np.zeros(4, np.float32)}
    inner = []
    found: dict[str, list[np.ndarray]] = {}
    for moment in evaluate_worlds(worlds, feeds, ["y", "last", "inner"]):
        values = [moment.stored(world.name, moment.sites[0]) for world in worlds]
        if moment.sites == ("inner",):
            np.testing.assert_array_equal(values[0], values[1])
            inner.append(values[0])
        else:
            found[moment.sites[0]] = values
    for plain, more in found.values():
        np.testing.assert_allclose(more - plain, ones, atol=1e-5)
    assert len(inner) == 3
    assert not np.array_equal(inner[0], inner[1])
    np.testing.assert_allclose(found["last"][0], sum(inner), atol=1e-5)


def test_a_world_whose_loop_ends_early_has_no_values_behind() -> None:
    program = _program(_COUNTING)
    feeds = {"count": np.array(5), "limit": np.array(1e9, np.float32), "x": np.zeros(4, np.float32)}
    short = World(name="short", program=program, feeds={"count": np.array(2)})
    told = [
        (moment.iteration[0], moment.stored("short", "after") is None)
        for moment in evaluate_worlds([World(name="plain", program=program), short], feeds, ["after"])
    ]
    assert told == [(0, False), (1, False), (2, True), (3, True), (4, True)]


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_few_sessions_have_threads_of_their_own_and_few_are_kept() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = %s> (x) }'
    programs = [_program(text % (0.001 * at)) for at in range(1, 60)]
    sessions = Sessions(threads=3, limit=20)
    sessions.run(programs[0].steps[0], [np.ones(1 << 18, np.float32)], programs[0])
    before = _threads()
    for program in programs[1:]:
        sessions.run(program.steps[0], [np.ones(1 << 18, np.float32)], program)
    assert len(sessions) == 20
    assert _threads() <= before + 2 * 20
    many = Sessions(threads=3)
    before = _threads()
    for program in programs:
        many.run(program.steps[0], [np.ones(1 << 18, np.float32)], program)
    assert _threads() <= before + 2 * 32


@pytest.mark.story
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.story
def test_thousands_of_kinds_of_nodes_keep_few_sessions_threads_and_bytes() -> None:
    kinds = 5_000
    body = "".join(f"y{at + 1} = LeakyRelu <alpha = {1e-5 * (at + 1):.6f}> (y{at}) " for at in range(kinds))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[4] y0) => (float[4] y{kinds}) {{ {body} }}'
    world, sessions = World(name="plain", program=_program(text)), Sessions()
    assert len({step.kind for step in world.program.steps}) == kinds
    threads, nbytes = _threads(), resident_memory()
    given = run_world(world, {"y0": np.ones(4, np.float32)}, [f"y{kinds}"], sessions)
    np.testing.assert_array_equal(given[f"y{kinds}"], np.ones(4, np.float32))
    assert len(sessions) == LIMIT
    assert _threads() <= threads + 2
    assert (
        resident_memory() - nbytes < LIMIT * 300_000
    )  # what is kept; all kinds of 60 kB would be more than twice that


_OF_ALL_TYPES = {
    "sequences": "s = SplitToSequence<axis = 1, keepdims = 1>(x, three) f = ConcatFromSequence<axis = 0>(s) y = Tanh(f)",
    "strings": "u = Identity(w) v = Concat<axis = 0>(u, w) k = Shape(v) f = Cast<to = 1>(k) y = Add(x, f)",
    "bfloat16": "b = Cast<to = 16>(x) r = Reshape(b, flat) f = Cast<to = 1>(r) y = Tanh(f)",
    "float8": "b = Cast<to = 17>(x) r = Reshape(b, flat) f = Cast<to = 1>(r) y = Tanh(f)",
    "int4": "f = DequantizeLinear(q, scale) y = Add(x, f)",
    "optionals": "o = Optional(x) h = OptionalHasElement(o) g = OptionalGetElement(o) y = Where(h, g, x)",
    "a function of the model": "y = local.Twice(x)",
    "an operator of the runtime's own": "g = com.microsoft.Gelu(x) y = Tanh(g)",
}


@pytest.mark.parametrize("name", _OF_ALL_TYPES)
def test_values_of_every_type_pass_through_and_a_world_that_rounds_before_them_is_followed(
    name: str, tmp_path: Path
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "local" : 1]>
    g (float[2,6] z) => (float[a,b] y) <float scale = {{0.5}}> {{ x = Sin(z) {_OF_ALL_TYPES[name]} }}
    <domain: "local", opset_import: ["" : 21]> Twice (a) => (c) {{ b = Add(a, a) c = Tanh(b) }}"""
    message = parser.parse_model(text)
    message.graph.initializer.extend(
        [
            numpy_helper.from_array(np.int64(3), "three"),
            numpy_helper.from_array(np.array([12]), "flat"),
            numpy_helper.from_array(np.array(["a", "b"], object), "w"),
            helper.make_tensor("q", onnx.TensorProto.INT4, [2, 6], [3, -4, 5, 0, 7, -8, 1, 2, -3, 4, -5, 6]),
        ]
    )
    inputs = {"z": _RANDOM.standard_normal((2, 6)).astype(np.float32)}
    whole = ort.InferenceSession(message.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    onnx.save(message, tmp_path / "model.onnx")
    program = program_of(load_model(tmp_path / "model.onnx"))
    plain = World(name="plain", program=program)
    low = World(name="low", program=program, stored={"x": FloatRounding("f16")})
    first, second = run_worlds([plain, low], inputs, ["y"], Sessions())
    np.testing.assert_allclose(first["y"], whole, rtol=1e-6)
    assert first["y"].shape == second["y"].shape == whole.shape
    coarse = name in {"float8", "bfloat16"}  # what a finer type has lost before, a coarser one may not see
    assert coarse or 0 < np.abs(second["y"] - first["y"]).max() < 0.01


@pytest.mark.parametrize("rows", [96, 4096])  # a table of 24 KiB, and of one MiB that no message holds
def test_a_table_of_four_bits_is_packed_as_the_whole_model_packs_it_once_for_all_worlds(rows: int) -> None:
    sizes = f"K = 512, N = {rows}, bits = 4, block_size = 32"
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2,512] x) => (float[2,{rows}] y) {{ h = Tanh(x) y = com.microsoft.MatMulNBits<{sizes}>(h, v, s) }}"""
    table = _RANDOM.integers(0, 256, (rows, 16, 16), np.uint8)
    scales = _RANDOM.uniform(0.5, 1.5, rows * 16).astype(np.float32)
    model, inputs = _model(text, v=table, s=scales), _RANDOM.standard_normal((2, 512)).astype(np.float32)
    whole = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    program, sessions = compile_program(model), Sessions()
    plain = World(name="plain", program=program)
    scaled = World(name="scaled", program=program, stored={"s": FloatRounding("bf16")})
    for _ in range(2):
        first, second = run_worlds([plain, scaled], {"x": inputs}, ["y"], sessions)
        np.testing.assert_array_equal(first["y"], whole.run(None, {"x": inputs})[0])
        assert 0 < np.linalg.norm(second["y"] - first["y"]) < 0.01 * np.linalg.norm(first["y"])
    assert len(sessions) == 2  # of Tanh, and one that holds the table


def test_a_program_is_of_the_graph_that_is_handed_out_with_it(tmp_path: Path) -> None:
    models = []
    for number in range(3):
        network = parser.parse_model(
            f"<ir_version: 8, opset_import: ['' : 17]> g (float[2] x) => (float[2] y{number}) {{ y{number} = Relu(x) }}".replace(
                "'", '"'
            )
        )
        (tmp_path / f"{number}.onnx").write_bytes(network.SerializeToString())
        models.append(load_model(tmp_path / f"{number}.onnx"))
    first, *others = models
    program_of(first)
    for other in others:
        prepared_graph(other)  # two more graphs, so that the first one may be forgotten
    program_of(first)
    graph, program = wide_program(first)
    assert set(graph.graph) == set(keys_of(program))
