"""A small HTTP server that speaks the KServe V2 protocol with its binary tensor extension, and runs a model behind it.

python kserve_server.py MODEL.onnx PORT_FILE [slow|dead|half|batched|failing|dying|lying|moving]

It stands for a Triton Inference Server, which needs a container: what is tested with it is our client's side of the protocol.
It is a process of its own, over a real socket, and shares no code with the backend.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import onnxruntime

TYPES = {"tensor(float)": "FP32", "tensor(int64)": "INT64"}
DTYPES = {"FP32": np.float32, "INT64": np.int64, "FP16": np.float16}


class Service(BaseHTTPRequestHandler):
    """Answers for one model, called "net", of version 3."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        mode = self.server.mode
        if self.path == "/v2/health/live":
            self.answer(400 if mode == "dead" else 200)
        elif self.path == "/v2":
            self.answer(200, {"name": "triton", "version": "2.50.0", "extensions": ["binary_tensor_data"]})
        elif self.path.startswith("/v2/models/net") and self.path.endswith("/ready"):
            self.answer(200)
        elif self.path in {"/v2/models/net", "/v2/models/net/versions/3"}:
            self.answer(200, self.metadata())
        else:
            self.answer(400, {"error": f"Request for unknown model: {self.path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.headers.get("Inference-Header-Content-Length", len(body)))
        request, blob = json.loads(body[:size]), body[size:]
        if self.server.mode == "slow":
            time.sleep(5)
        if self.server.mode == "dying":
            os._exit(1)
        if self.server.mode == "failing":
            self.answer(500, {"error": "CUDA out of memory"})
            return
        feeds = {}
        for one in request["inputs"]:
            count = one["parameters"]["binary_data_size"]
            feeds[one["name"]] = np.frombuffer(blob[:count], DTYPES[one["datatype"]]).reshape(one["shape"])
            blob = blob[count:]
        session = self.server.session
        outputs, parts = [], []
        for wanted, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            kind = self.type_of(wanted)
            if self.server.mode == "lying" and kind == "FP32":
                kind = "FP16"
            array = value.astype(DTYPES[kind])
            part = np.ascontiguousarray(array).tobytes()
            parts.append(part)
            outputs.append(
                {
                    "name": wanted.name,
                    "datatype": kind,
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": len(part)},
                }
            )
        held = {"model_name": "net", "model_version": self.server.version, "outputs": outputs}
        self.server.version = "4" if self.server.mode == "moving" else "3"
        self.answer(200, held, b"".join(parts))

    def metadata(self) -> dict:
        session = self.server.session
        extra = [-1] if self.server.mode == "batched" else []
        shape = lambda value: extra + [dim if isinstance(dim, int) else -1 for dim in value.shape]  # noqa: E731
        told = lambda value: {"name": value.name, "datatype": self.type_of(value), "shape": shape(value)}  # noqa: E731
        return {
            "name": "net",
            "versions": ["3"],
            "platform": "onnxruntime_onnx",
            "inputs": [told(value) for value in session.get_inputs()],
            "outputs": [told(value) for value in session.get_outputs()],
        }

    def type_of(self, value: object) -> str:
        found = TYPES[value.type]
        half = self.server.mode == "half" and value.name == "y"
        return "FP16" if half else found

    def answer(self, status: int, held: dict | None = None, blob: bytes = b"") -> None:
        head = json.dumps(held).encode() if held is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream" if blob else "application/json")
        if blob:
            self.send_header("Inference-Header-Content-Length", str(len(head)))
        self.send_header("Content-Length", str(len(head) + len(blob)))
        self.end_headers()
        self.wfile.write(head + blob)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read no log."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Service)
    server.session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    server.version = "3"
    server.mode = sys.argv[3] if len(sys.argv) > 3 else ""
    Path(sys.argv[2]).write_text(str(server.server_address[1]), encoding="utf-8")
    server.serve_forever()
