"""The same service as kserve_server.py over gRPC, on the protocol's own generated messages, as a process of its own.

python kserve_grpc_server.py MODEL.onnx PORT_FILE [slow|dead|half|batched|failing|dying|lying|moving]
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2, service_pb2_grpc

TYPES = {"tensor(float)": "FP32", "tensor(int64)": "INT64"}
DTYPES = {"FP32": np.float32, "INT64": np.int64, "FP16": np.float16}


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers for one model, called "net", of version 3."""

    def __init__(self, session: onnxruntime.InferenceSession, mode: str) -> None:
        self.session = session
        self.mode = mode
        self.version = "3"

    def ServerLive(self, _request: object, _context: object) -> object:
        return service_pb2.ServerLiveResponse(live=self.mode != "dead")

    def ServerMetadata(self, _request: object, _context: object) -> object:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.50.0")

    def ModelReady(self, _request: object, _context: object) -> object:
        return service_pb2.ModelReadyResponse(ready=True)

    def ModelMetadata(self, request: object, context: grpc.ServicerContext) -> object:
        if request.name != "net" or request.version not in {"", "3"}:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: {request.name}")
        answer = service_pb2.ModelMetadataResponse(name="net", versions=["3"], platform="onnxruntime_onnx")
        for told, values in ((answer.inputs, self.session.get_inputs()), (answer.outputs, self.session.get_outputs())):
            for value in values:
                shape = [dim if isinstance(dim, int) else -1 for dim in value.shape]
                batch = [-1] if self.mode == "batched" else []
                told.add(name=value.name, datatype=self.type_of(value), shape=batch + shape)
        return answer

    def ModelInfer(self, request: object, context: grpc.ServicerContext) -> object:
        if self.mode == "slow":
            time.sleep(5)
        if self.mode == "dying":
            os._exit(1)
        if self.mode == "failing":
            context.abort(grpc.StatusCode.INTERNAL, "CUDA out of memory")
        feeds = {
            one.name: np.frombuffer(blob, DTYPES[one.datatype]).reshape(list(one.shape))
            for one, blob in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        answer = service_pb2.ModelInferResponse(model_name="net", model_version=self.version)
        self.version = "4" if self.mode == "moving" else "3"
        found = dict(
            zip([value.name for value in self.session.get_outputs()], self.session.run(None, feeds), strict=True)
        )
        kinds = {value.name: self.type_of(value) for value in self.session.get_outputs()}
        for wanted in request.outputs:
            kind = kinds[wanted.name]
            if self.mode == "lying" and kind == "FP32":
                kind = "FP16"
            array = np.ascontiguousarray(found[wanted.name].astype(DTYPES[kind]))
            answer.outputs.add(name=wanted.name, datatype=kind, shape=array.shape)
            answer.raw_output_contents.append(array.tobytes())
        return answer

    def type_of(self, value: object) -> str:
        return "FP16" if self.mode == "half" and value.name == "y" else TYPES[value.type]


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(2))
    opened = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    service = Service(opened, sys.argv[3] if len(sys.argv) > 3 else "")
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    Path(sys.argv[2]).write_text(str(port), encoding="utf-8")
    server.wait_for_termination()
