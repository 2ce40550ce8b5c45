"""A model of a running Triton Inference Server, over HTTP or gRPC: `triton?url=localhost:8000&name=resnet`.

**Protocol.** HTTP unless `protocol=grpc` is written; without `url=` at the ports that Triton takes for them, 8000 and 8001.

**What runs.** The server's model, as its clients meet it: batching, ensembles and pre- and postprocessing included. Inputs and
outputs go strictly by name. Before the first request the server's metadata is held against the ONNX model: names, types,
number of dimensions, and every dimension that both fix. A difference is an error, because a request that fits by chance would
be compared all the same.

**Types.** Tensors travel in binary, so nothing is lost in text. Outputs in FP16 or BF16 are given in the float type that the
ONNX model declares. What the server computes in it does not tell: declare it (`triton:f16?…`).

**Versions.** Without `version=` the server chooses by its policy, the newest as a rule; what it has is told in the study's
environment. Intermediate tensors are not shown.

Any server that speaks the KServe V2 protocol will do. Source: Triton's documentation, "HTTP/REST and GRPC Protocol" and
"Binary Tensor Data Extension".
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends._triton import PROTOCOLS, connect_client
from parityscope.backends._triton_checks import TYPES, check_model, check_version, restore_declared_type
from parityscope.backends.command import parse_seconds
from parityscope.errors import ParityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parityscope.backends._triton import Client
    from parityscope.case import Model, Sample
    from parityscope.records import Target

__all__ = ["BACKEND"]

_DEFAULT_WAIT_S = 60.0  # chosen: an answer that takes longer is taken for a server that hangs; wait= changes it
_EXCEEDED = "StatusCode.DEADLINE_EXCEEDED"  # gRPC's name of a time limit
_OTHER_PROTOCOL = ("Expected HTTP/", "Failed parsing HTTP/2")  # a gRPC port asked over HTTP, and the other way round
_BROKEN_OFF = ("connection closed", "Socket closed", "Connection reset", "End of TCP stream")  # by either client
_MESSAGE = 400  # characters of a server's message that are shown


def _probe_package() -> Probe:
    try:
        import tritonclient
        import tritonclient.grpc
        import tritonclient.http
    except ImportError as error:
        return Probe(problem=f"tritonclient cannot be imported: {error}", fix="pip install 'parityscope[triton]'")
    from importlib.metadata import version

    return Probe(version=version(tritonclient.__name__))


@contextlib.contextmanager
def _open_session(model: Model, target: Target, _capture: Capture) -> Iterator[Session]:
    protocol = target.option("protocol", "http")
    url, name, version = _server_address(target, protocol), target.option("name"), target.option("version")
    wait = parse_seconds(target.option("wait"), _DEFAULT_WAIT_S, "wait")
    where = f"{url}, model {name}"
    with contextlib.ExitStack() as stack:
        with _turn_into_errors("reaching it", where, wait, protocol):
            client = stack.enter_context(connect_client(protocol, url, wait))
        server, described = _ask_server(client, name, version, where, wait, protocol)
        check_model(model, described, where)
        served = {one["name"]: one["datatype"] for one in described.get("outputs", ())}
        wanted = [value.name for value in model.outputs]

        answered: list[str] = []

        def run(sample: Sample) -> Mapping[str, np.ndarray]:
            given = [
                (value.name, TYPES[value.dtype], np.asarray(sample.arrays[value.name], order="C"))
                for value in model.inputs
            ]
            with _turn_into_errors(f"answering sample {sample.name}", where, wait, protocol):
                arrays, by = client.infer(name, version, given, wanted)
            check_version(by, version or (answered[0] if answered else ""), sample.name, where)
            answered.append(by)
            return {
                value.name: restore_declared_type(value.name, array, served[value.name], value.dtype, where)
                for value in model.outputs
                if (array := arrays[value.name]) is not None
            }

        yield Session(
            run=run,
            environment={
                "triton": f"{server.get('name', 'server')} {server.get('version', '')}".strip(),
                "model version": version or f"of {', '.join(described.get('versions', ())) or 'unknown'}",
                "platform": str(described.get("platform", "")),
            },
        )


def _server_address(target: Target, protocol: str) -> str:
    if not target.option("name"):
        raise ParityError("triton needs the name of a model", fix="write triton?url=localhost:8000&name=MODEL")
    url = target.option("url", PROTOCOLS.get(protocol, ""))
    if "://" in url:
        raise ParityError(f"url={url!r} has a scheme", fix="write HOST:PORT, for example url=localhost:8000")
    if protocol in PROTOCOLS and not re.fullmatch(r"[^\s/]+:\d{1,5}", url):
        port = PROTOCOLS[protocol].partition(":")[2]
        raise ParityError(
            f"url={url!r} is not HOST:PORT", fix=f"write url={url.partition(':')[0] or 'localhost'}:{port}"
        )
    return url


def _ask_server(
    client: Client, name: str, version: str, where: str, wait: float, protocol: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the server says of itself and of the model."""
    with _turn_into_errors("asking whether it is alive", where, wait, protocol):
        if not client.alive():
            raise ParityError(
                "the server is there and not alive", where=where, fix="look into its log, and wait for it"
            )
    with _turn_into_errors("asking for its models", where, wait, protocol):
        server = client.server()
        described = client.model(name, "")
    has = [str(one) for one in described.get("versions", ())]
    if version and has and version not in has:
        raise ParityError(
            f"the server has no version {version} of the model, it has {', '.join(has)}",
            where=where,
            fix=f"write version={has[-1]}, or leave version= out",
        )
    with _turn_into_errors("asking whether the model is ready", where, wait, protocol):
        ready = client.ready(name, version)
    if not ready:
        raise ParityError(
            "the model is known to the server and not ready", where=where, fix="look into its log, or load the model"
        )
    if version:
        with _turn_into_errors("asking for the version", where, wait, protocol):
            described = client.model(name, version)
    return server, described


@contextlib.contextmanager
def _turn_into_errors(doing: str, where: str, wait: float, protocol: str) -> Iterator[None]:
    """Turns whatever the client raises (its own, the socket's, the HTTP library's, gRPC's status) into one error."""
    try:
        yield
    except ParityError:
        raise
    except Exception as error:
        kind = type(error).__name__
        words = " ".join(str(error).split())[:_MESSAGE] or kind
        foreign = next((said for said in _OTHER_PROTOCOL if said in words), "")
        absent = isinstance(error, ConnectionRefusedError) or "gaierror" in kind
        if foreign:
            other = next(one for one in PROTOCOLS if one != protocol)
            problem = f"what answers there does not speak {protocol}"
            fix = f"write protocol={other}, or give the port for {protocol}"
        elif isinstance(error, ConnectionResetError) or any(said in words for said in _BROKEN_OFF):
            problem, fix = f"the server broke off when {doing}: {words}", "look into its log: it may have crashed"
        elif absent or "StatusCode.UNAVAILABLE" in words:
            port = PROTOCOLS[protocol].partition(":")[2]
            problem, fix = f"no server answers: {words}", f"start it, or give its port for {protocol}: url=HOST:{port}"
        elif isinstance(error, TimeoutError) or "timed out" in words or "Timeout" in kind or _EXCEEDED in words:
            problem, fix = (
                f"the server took longer than {wait:g} s when {doing}",
                "write wait=SECONDS, or look into its log",
            )
        else:
            problem = f"the server failed when {doing}: {words}"
            fix = "look into the server's log; `curl HOST:8000/v2/models/NAME` shows what it has"
        raise ParityError(problem, where=where, fix=fix) from error


BACKEND = Backend(
    name="triton",
    title="Triton Inference Server (HTTP or gRPC)",
    called=("tritonserver",),
    options={
        "url": "HOST:PORT of its service (default localhost:8000, with gRPC localhost:8001)",
        "protocol": "http or grpc (default http)",
        "name": "the model's name in the server",
        "version": "the model's version (default: as the server's policy says)",
        "wait": "seconds that one answer may take (default 60)",
    },
    precisions=("f32", "tf32", "f16", "bf16", "int8"),
    observes=False,
    probe=_probe_package,
    open=_open_session,
    words="Triton",
    package="tritonclient",
    onnxruntime="perhaps",
    tensorrt="perhaps",
)
