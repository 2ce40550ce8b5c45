"""The two protocols of a Triton Inference Server behind one record: what its HTTP and its gRPC client do differently.

The KServe V2 protocol has the same requests over both. The clients differ in how they are told of a time limit (HTTP: once for
the connection; gRPC: with each request), in what they take for an input, and in their metadata (gRPC: a protobuf message,
given as JSON, where 64-bit integers are text and empty lists are left out). The HTTP client is made of greenlets, which work in
the thread alone that made them, and a study opens its sides in one thread and runs them in others: it has a thread of its own.

Source: the client's own documentation, and Triton's "HTTP/REST and GRPC Protocol".
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from parityscope.errors import ParityError
from parityscope.light_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

_P = ParamSpec("_P")
_T = TypeVar("_T")

PROTOCOLS: Mapping[str, str] = {"http": "localhost:8000", "grpc": "localhost:8001"}
"""The protocols, and where a server listens for each when nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
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
def connect_client(protocol: str, url: str, wait: float) -> Iterator[Client]:
    """A client while the block lasts; `wait` in seconds is what one answer may take."""
    if protocol not in PROTOCOLS:
        raise ParityError(f"protocol={protocol!r} is none of Triton's", fix="write protocol=http or protocol=grpc")
    with (_over_http if protocol == "http" else _over_grpc)(url, wait) as client:
        yield client


@contextlib.contextmanager
def _over_http(url: str, wait: float) -> Iterator[Client]:
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
            yield Client(
                alive=there(client.is_server_live),
                server=there(client.get_server_metadata),
                model=there(client.get_model_metadata),
                ready=there(client.is_model_ready),
                infer=there(infer),
            )
        finally:
            there(client.close)()


@contextlib.contextmanager
def _over_grpc(url: str, wait: float) -> Iterator[Client]:
    from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

    def infer(
        name: str, version: str, inputs: Sequence[tuple[str, str, np.ndarray]], outputs: Sequence[str]
    ) -> tuple[Mapping[str, np.ndarray | None], str]:
        given = [InferInput(one, list(array.shape), kind).set_data_from_numpy(array) for one, kind, array in inputs]
        wanted = [InferRequestedOutput(one) for one in outputs]
        answer = client.infer(name, given, model_version=version, outputs=wanted, client_timeout=wait)
        return {one: answer.as_numpy(one) for one in outputs}, str(answer.get_response().model_version)

    with contextlib.closing(InferenceServerClient(url)) as client:
        yield Client(
            alive=lambda: client.is_server_live(client_timeout=wait),
            server=lambda: client.get_server_metadata(as_json=True, client_timeout=wait),
            model=lambda name, version: client.get_model_metadata(name, version, as_json=True, client_timeout=wait),
            ready=lambda name, version: client.is_model_ready(name, version, client_timeout=wait),
            infer=infer,
        )
