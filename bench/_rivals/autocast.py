"""NVIDIA ModelOpt's AutoCast with its default rules, on the search samples.

    python autocast.py MODEL FOLDER-OF-NPZ OUTPUT fp16|bf16        (in the throwaway environment)

It runs the FP32 model once for each sample and keeps in FP32 what exceeds its thresholds; it measures no error and claims
none.

modelopt.onnx imports torch for one function that encodes FP8 weights. AutoCast does not call it, so that an empty module
stands in for 2 GB; should something touch it, that is an AttributeError and not another result.
"""

from __future__ import annotations

import sys
import types


def main() -> None:
    import onnx
    import onnxruntime.quantization  # noqa: F401 - it asks whether torch is there, before the stand-in is

    sys.modules["torch"] = types.ModuleType("torch")
    from modelopt.onnx.autocast import convert_to_mixed_precision  # type: ignore[import-not-found,unused-ignore]

    del sys.modules["torch"]  # SciPy asks what is imported already
    model, samples, output, low = sys.argv[1:]
    made = convert_to_mixed_precision(model, low_precision_type=low, calibration_data=samples, keep_io_types=True)
    onnx.save(made, output)


if __name__ == "__main__":
    main()
