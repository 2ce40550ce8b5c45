"""How long `parityscope log` takes for a log of 100 MB, and the memory it needs; writes two such logs and reads them.

    python bench/read_log.py [--megabytes 100]

* **builds**: the verbose log of TensorRT-RTX building PP-OCRv4's detector, once for each build, until the size is reached;
* **autotuning**: a log as `trtexec --verbose` of TensorRT 8 to 10 prints it, nearly all of whose lines are timed kernels
  (their form is that of the logs in https://github.com/NVIDIA/TensorRT/issues/1389 and /1090), with 2,000 layers.

Each is read by the command line in a process of its own, whose time (by the clock and of the processor) and largest resident
memory are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--megabytes", type=int, default=100)
    size = options.parse_args().megabytes * 1_000_000
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("builds", write_builds), ("autotuning", write_autotuning)):
            path = Path(folder, f"{name}.log")
            write(path, size)
            found[name] = {"bytes": path.stat().st_size, **measured(path)}
            path.unlink()
    print(json.dumps(found, indent=1))


def write_builds(path: Path, size: int) -> None:
    one = path.with_suffix(".one")
    with one.open("wb") as log:
        subprocess.run([sys.executable, __file__, "--build"], check=True, stdout=log, stderr=subprocess.STDOUT)
    text = one.read_bytes()
    with path.open("wb") as log:
        while log.tell() < size:
            log.write(text)
    one.unlink()


def write_autotuning(path: Path, size: int) -> None:
    layers = 2000
    stamp = "[08/20/2024-20:57:50]"
    with path.open("w", encoding="utf-8") as log:
        log.write("&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=model.onnx --fp16 --verbose\n")
        log.write(f"{stamp} [V] [TRT] Original: {layers} layers\n")
        kernel = 0
        while log.tell() < size:
            layer = kernel // 64 % layers
            if kernel % 64 == 0:
                log.write(
                    f"{stamp} [V] [TRT] --------------- Timing Runner: /block.{layer}/Conv (CaskConvolution[0x80000009])\n"
                )
            log.write(
                f"{stamp} [V] [TRT] /block.{layer}/Conv Set Tactic Name: sm80_xmma_fprop_implicit_gemm_{kernel}\n"
            )
            log.write(f"{stamp} [V] [TRT] Tactic: 0x{kernel:016x} Time: 0.006208\n")
            if kernel % 64 == 63:
                log.write(
                    f"{stamp} [V] [TRT] >>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: 0x{kernel:016x}\n"
                )
            kernel += 1
        log.write(f"{stamp} [V] [TRT] Engine Layer Information:\n")
        for layer in range(layers):
            tensors = f"t{layer}[Half(1,64,56,56)] -> t{layer + 1}[Half(1,64,56,56)]"
            log.write(f"Layer(CaskConvolution): /block.{layer}/Conv, Tactic: 0x1, {tensors}\n")
        log.write(f"{stamp} [I] [TRT] Engine generation completed in 500.1 seconds.\n")
        log.write("&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=model.onnx --fp16 --verbose\n")


def measured(path: Path) -> dict[str, float]:
    report = path.with_suffix(".json")
    start = time.perf_counter()
    with report.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "parityscope", "log", str(path), "--format", "json"], stdout=out
        )
        _, _, usage = os.wait4(child.pid, 0)  # this child's own peak, which RUSAGE_CHILDREN does not tell
    seconds = time.perf_counter() - start
    document = json.loads(report.read_bytes())["reference"]
    return {
        "lines": document["lines"],
        "layers": len(document["layers"]),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


def build() -> None:
    import tensorrt_rtx as trt

    from proving.models.fetching import model_path

    log = trt.Logger(trt.Logger.VERBOSE)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    parser.parse_from_file(str(model_path("ocr-det")))
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    profile.set_shape("x", *[(1, 3, 384, 768)] * 3)
    config.add_optimization_profile(profile)
    builder.build_serialized_network(network, config)


if __name__ == "__main__":
    if sys.argv[1:] == ["--build"]:
        build()
    else:
        main()
