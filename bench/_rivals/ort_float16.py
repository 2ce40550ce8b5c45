"""ONNX Runtime's convert_float_to_float16 with its default block list of operators: no data, no run, no claim.

python ort_float16.py MODEL OUTPUT        (onnxruntime is in the project's environment already)
"""

from __future__ import annotations

import sys


def main() -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model, output = sys.argv[1:]
    onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True), output)


if __name__ == "__main__":
    main()
