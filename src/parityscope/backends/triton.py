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

Whether what a server tells of its model, and what it answers, is the model that is compared: names, types, shapes, version.
"""

from __future__ import annotations

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from parityscope.backends import Backend, Capture, Probe, Session
from parityscope.backends.command import parse_seconds
from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parityscope.case import Model, Sample
    from parityscope.records import Target, ValueInfo

# The two protocols of a Triton Inference Server behind one record: what its HTTP and its gRPC client do differently.
#
# The KServe V2 protocol has the same requests over both. The clients differ in how they are told of a time limit (HTTP: once
# for the connection; gRPC: with each request), in what they take for an input, and in their metadata (gRPC: a protobuf message,
# given as JSON, where 64-bit integers are text and empty lists are left out). The HTTP client is made of greenlets, which work
# in the thread alone that made them, and a study opens its sides in one thread and runs them in others: it has a thread of its
# own.
#
# Source: the client's own documentation, and Triton's "HTTP/REST and GRPC Protocol".

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PROTOCOLS: Mapping[str, str] = {"http": "localhost:8000", "grpc": "localhost:8001"}
"""The protocols, and where a server listens for each when nothing else is said."""

# The protocol's names of types; those that it lacks cannot be served.
_TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "str": "BYTES",
}
_HALVES = {"FP16", "BF16"}
_FLOATS = {"float32", "float64"}
_DEFAULT_WAIT_S = 60.0  # chosen: an answer that takes longer is taken for a server that hangs; wait= changes it
_EXCEEDED = "StatusCode.DEADLINE_EXCEEDED"  # gRPC's name of a time limit
_OTHER_PROTOCOL = ("Expected HTTP/", "Failed parsing HTTP/2")  # a gRPC port asked over HTTP, and the other way round
_BROKEN_OFF = ("connection closed", "Socket closed", "Connection reset", "End of TCP stream")  # by either client
_MESSAGE = 400  # characters of a server's message that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """Requests to one server. Whatever the client library raises comes through.

    Attributes:
        alive: Whether the server says that it is.
        server: Its metadata.
        model: The metadata of a model and a version of it ("": the server's choice).
        ready: Whether that model answers requests.
        infer: From model, version, inputs (name, type in the protocol's words, array) and the names of outputs to the outputs,
            None where the answer lacks one, and the version of the model that answered ("": it does not say).
    """

    alive: Callable[[], bool]
    server: Callable[[], Mapping[str, Any]]
    model: Callable[[str, str], Mapping[str, Any]]
    ready: Callable[[str, str], bool]
    infer: Callable[
        [str, str, Sequence[tuple[str, str, np.ndarray]], Sequence[str]],
        tuple[Mapping[str, np.ndarray | None], str],
    ]


@contextlib.contextmanager
def _connect_client(protocol: str, url: str, wait: float) -> Iterator[_Client]:
    """A client while the block lasts; `wait` in seconds is what one answer may take."""
    if protocol not in _PROTOCOLS:
        raise ParityError(f"protocol={protocol!r} is none of Triton's", fix="write protocol=http or protocol=grpc")
    with (_over_http if protocol == "http" else _over_grpc)(url, wait) as client:
        yield client


@contextlib.contextmanager
def _over_http(url: str, wait: float) -> Iterator[_Client]:
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

    def infer(
        name: str, version: str, inputs: Sequence[tuple[str, str, np.ndarray]], outputs: Sequence[str]
    ) -> tuple[Mapping[str, np.ndarray | None], str]:
        given = [
            InferInput(one, list(array.shape), kind).set_data_from_numpy(array, binary_data=True)
            for one, kind, array in inputs
        ]
        # In binary, so that nothing is lost in text.
        wanted = [InferRequestedOutput(one, binary_data=True) for one in outputs]
        answer = client.infer(name, given, model_version=version, outputs=wanted)
        return {one: answer.as_numpy(one) for one in outputs}, str(answer.get_response().get("model_version", ""))

    with ThreadPoolExecutor(1, thread_name_prefix="triton") as thread:
        client = thread.submit(InferenceServerClient, url, connection_timeout=wait, network_timeout=wait).result()

        def there(call: Callable[_P, _T]) -> Callable[_P, _T]:
            return lambda *args, **named: thread.submit(call, *args, **named).result()

        try:
            yield _Client(
                alive=there(client.is_server_live),
                server=there(client.get_server_metadata),
                model=there(client.get_model_metadata),
                ready=there(client.is_model_ready),
                infer=there(infer),
            )
        finally:
            there(client.close)()


@contextlib.contextmanager
def _over_grpc(url: str, wait: float) -> Iterator[_Client]:
    from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

    def infer(
        name: str, version: str, inputs: Sequence[tuple[str, str, np.ndarray]], outputs: Sequence[str]
    ) -> tuple[Mapping[str, np.ndarray | None], str]:
        given = [InferInput(one, list(array.shape), kind).set_data_from_numpy(array) for one, kind, array in inputs]
        wanted = [InferRequestedOutput(one) for one in outputs]
        answer = client.infer(name, given, model_version=version, outputs=wanted, client_timeout=wait)
        return {one: answer.as_numpy(one) for one in outputs}, str(answer.get_response().model_version)

    with contextlib.closing(InferenceServerClient(url)) as client:
        yield _Client(
            alive=lambda: client.is_server_live(client_timeout=wait),
            server=lambda: client.get_server_metadata(as_json=True, client_timeout=wait),
            model=lambda name, version: client.get_model_metadata(name, version, as_json=True, client_timeout=wait),
            ready=lambda name, version: client.is_model_ready(name, version, client_timeout=wait),
            infer=infer,
        )


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
            client = stack.enter_context(_connect_client(protocol, url, wait))
        server, described = _ask_server(client, name, version, where, wait, protocol)
        _check_model(model, described, where)
        served = {one["name"]: one["datatype"] for one in described.get("outputs", ())}
        wanted = [value.name for value in model.outputs]

        answered: list[str] = []

        def run(sample: Sample) -> Mapping[str, np.ndarray]:
            given = [
                (value.name, _TYPES[value.dtype], np.asarray(sample.arrays[value.name], order="C"))
                for value in model.inputs
            ]
            with _turn_into_errors(f"answering sample {sample.name}", where, wait, protocol):
                arrays, by = client.infer(name, version, given, wanted)
            _check_version(by, version or (answered[0] if answered else ""), sample.name, where)
            answered.append(by)
            return {
                value.name: _restore_declared_type(value.name, array, served[value.name], value.dtype, where)
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
    url = target.option("url", _PROTOCOLS.get(protocol, ""))
    if "://" in url:
        raise ParityError(f"url={url!r} has a scheme", fix="write HOST:PORT, for example url=localhost:8000")
    if protocol in _PROTOCOLS and not re.fullmatch(r"[^\s/]+:\d{1,5}", url):
        port = _PROTOCOLS[protocol].partition(":")[2]
        raise ParityError(
            f"url={url!r} is not HOST:PORT", fix=f"write url={url.partition(':')[0] or 'localhost'}:{port}"
        )
    return url


def _ask_server(
    client: _Client, name: str, version: str, where: str, wait: float, protocol: str
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
            other = next(one for one in _PROTOCOLS if one != protocol)
            problem = f"what answers there does not speak {protocol}"
            fix = f"write protocol={other}, or give the port for {protocol}"
        elif isinstance(error, ConnectionResetError) or any(said in words for said in _BROKEN_OFF):
            problem, fix = f"the server broke off when {doing}: {words}", "look into its log: it may have crashed"
        elif absent or "StatusCode.UNAVAILABLE" in words:
            port = _PROTOCOLS[protocol].partition(":")[2]
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


def _check_model(model: Model, described: Mapping[str, Any], where: str) -> None:
    """Whether the server's model is this one, as far as its metadata tells."""
    inputs = {one["name"]: one for one in described.get("inputs", ())}
    outputs = {one["name"]: one for one in described.get("outputs", ())}
    missing = [value.name for value in model.inputs if value.name not in inputs]
    extra = sorted(set(inputs) - {value.name for value in model.inputs})
    unserved = [value.name for value in model.outputs if value.name not in outputs]
    if missing or extra or unserved:
        parts = [
            f"it has no input {', '.join(missing)}" if missing else "",
            f"it also takes {', '.join(extra)}" if extra else "",
            f"it gives no output {', '.join(unserved)}" if unserved else "",
        ]
        raise ParityError(
            f"the server's model is not this one: {'; '.join(part for part in parts if part)}",
            where=where,
            fix=f"it takes {', '.join(inputs)} and gives {', '.join(outputs)}: give the model that is served, or rename there",
        )
    for value in model.inputs:
        _check_one("input", value, inputs[value.name], where, halves=False)
    for value in model.outputs:
        _check_one("output", value, outputs[value.name], where, halves=True)


def _check_one(kind: str, value: ValueInfo, served: Mapping[str, Any], where: str, *, halves: bool) -> None:
    """One tensor's type and shape; an output may be a half where a float is declared."""
    wanted, has = _TYPES.get(value.dtype, value.dtype), str(served["datatype"])
    narrowed = halves and has in _HALVES and value.dtype in _FLOATS
    if has != wanted and not narrowed:
        raise ParityError(
            f"{kind} {value.name} is {has} in the server and {wanted} in the model",
            where=where,
            fix="serve the model with the same types, or compare with the model that is served",
        )
    shape = [int(size) for size in served.get("shape", ())]
    if value.shape is None:
        return
    fits = len(shape) == len(value.shape) and all(
        size < 0 or not isinstance(dim, int) or dim == size for dim, size in zip(value.shape, shape, strict=True)
    )
    if not fits:
        raise ParityError(
            f"{kind} {value.name} has shape {shape} in the server and {list(value.shape)} in the model",
            where=where,
            fix="in config.pbtxt, max_batch_size adds a dimension in front: set it to 0, or leave the batch out of dims",
        )


def _check_version(answered: str, wanted: str, sample: str, where: str) -> None:
    """Whether the version that was asked, or that answered before, answered: a server may load another meanwhile."""
    if answered and wanted and answered != wanted:
        raise ParityError(
            f"version {answered} of the model answered sample {sample}, and not version {wanted}",
            where=where,
            fix=f"write version={wanted}, and keep the server from loading other versions meanwhile",
        )


def _restore_declared_type(name: str, array: np.ndarray, served: str, declared: str, where: str) -> np.ndarray:
    """An output in the type that is declared for it; `served` is what the metadata said of it."""
    if served in _HALVES and declared in _FLOATS:
        return array.astype(declared)
    if declared in _TYPES and declared not in {"bfloat16", "str"} and array.dtype.name != declared:
        raise ParityError(
            f"output {name} came as {array.dtype.name}, and the server's metadata says {served}",
            where=where,
            fix="serve the model with the types that its configuration declares",
        )
    return array


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
