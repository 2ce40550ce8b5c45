"""Type inference and simulation over the models of ONNX's own operator tests: every operator, opset and type."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import onnxruntime as ort
import pytest

from parityscope.arithmetic.element_types import infer_types
from parityscope.arithmetic.opsets import prepare_copy
from parityscope.errors import ParityError
from simulated import detype, simulate

if TYPE_CHECKING:
    import onnx


@pytest.fixture(scope="module")
def operators() -> list[tuple[str, onnx.ModelProto]]:
    """The models of ONNX's own tests of operators: one or more for every operator there is."""
    # Here: importing it imports every test of them, for which other processes have no use.
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the overflows that some of them make on purpose
        return [(case.name, case.model) for case in collect_testcases(None) if case.model is not None]


# Their types follow no rule of a schema: optimizers under training, attributes of one's own choice.
UNTOLD = ("Adagrad", "Adam", "LabelEncoder", "LinearAttention", "Momentum")


def test_types_of_all_operators(operators: list[tuple[str, onnx.ModelProto]]) -> None:
    for name, proto in operators:
        model = ir.from_proto(proto)
        declared = {value.name: str(value.type) for value in model.graph.outputs}
        for node in model.graph.all_nodes():
            for value in node.outputs:
                value.type = None
        infer_types(model)
        for value in model.graph.outputs:
            producer = value.producer()
            if producer is None or producer.op_type not in UNTOLD:
                assert str(value.type) == declared[value.name], name


@pytest.mark.parametrize("precision", ["", "f16", "tf32"])
def test_simulations_of_all_operators_load(operators: list[tuple[str, onnx.ModelProto]], precision: str) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    loaded = 0
    for name, proto in operators[len(precision) :: 10]:  # a tenth of them, another one for each precision
        if not _loads(proto, options):
            continue
        model = ir.from_proto(proto)
        simulation = simulate(model, precision) if precision else detype(model)
        assert _loads(ir.to_proto(simulation.found.model), options), name
        loaded += 1
    assert loaded > 125


def _loads(proto: onnx.ModelProto, options: Any) -> bool:
    try:
        ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base but this
        return False
    return True


def test_scan_of_opset_8_is_refused_where_it_would_change_its_meaning(
    operators: list[tuple[str, onnx.ModelProto]],
) -> None:
    proto = dict(operators)["test_scan_sum"]
    assert simulate(ir.from_proto(proto), "bf16").model.opset_imports[""] == 8
    with pytest.raises(ParityError, match="Scan of opset 8"):
        prepare_copy(ir.from_proto(proto), 13)
