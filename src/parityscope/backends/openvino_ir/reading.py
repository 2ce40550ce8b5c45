"""An IR as OpenVINO reads it, whose values all have names: those that it holds, else their operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parityscope.errors import ParityError

if TYPE_CHECKING:
    from pathlib import Path

ENDING = ".xml"


def read_openvino_file(core: Any, path: Path) -> Any:
    """The `openvino.Model` of an ONNX file or of an IR.

    Raises:
        ParityError: OpenVINO does not read it.
    """
    is_own = path.suffix == ENDING
    try:
        model = core.read_model(str(path))
    except RuntimeError as error:
        raise ParityError(
            f"OpenVINO cannot read the model: {first_line(error)}",
            where=str(path),
            fix="give the .xml with its .bin beside it, both whole, of this version of OpenVINO or an older one"
            if is_own
            else "check the operators that it names against OpenVINO's list of supported ONNX operators",
        ) from error
    if is_own:
        _name_values(model)
    return model


def first_line(error: Exception) -> str:
    """What an exception of OpenVINO says: the last line that names no place of its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line.startswith("Exception from")), str(error))[:400]


def _name_values(model: Any) -> None:
    """Gives a name to each value that has none, so that it can be observed and compared by it."""
    operations = model.get_ordered_ops()
    taken = {name for node in operations for port in node.outputs() for name in port.get_names()}
    for node in operations:
        ports = [] if node.get_type_name() == "Result" else node.outputs()
        for port in ports:
            if port.get_names():
                continue
            name = node.get_friendly_name() + (f".{port.get_index()}" if len(ports) > 1 else "")
            while name in taken:
                name += "'"
            taken.add(name)
            port.get_tensor().set_names({name})
