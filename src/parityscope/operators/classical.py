"""ONNX's domain for classical models. What they compute is not looked into: they are known by name alone."""

from __future__ import annotations

from parityscope.operators._records import Operator

OPERATORS = (
    Operator("ArrayFeatureExtractor", "classical", domain="ai.onnx.ml"),
    Operator("Binarizer", "classical", domain="ai.onnx.ml"),
    Operator("CastMap", "classical", domain="ai.onnx.ml"),
    Operator("CategoryMapper", "classical", domain="ai.onnx.ml"),
    Operator("DictVectorizer", "classical", domain="ai.onnx.ml"),
    Operator("FeatureVectorizer", "classical", domain="ai.onnx.ml"),
    Operator("Imputer", "classical", domain="ai.onnx.ml"),
    Operator("LabelEncoder", "classical", domain="ai.onnx.ml"),
    Operator("LinearClassifier", "classical", domain="ai.onnx.ml"),
    Operator("LinearRegressor", "classical", domain="ai.onnx.ml"),
    Operator("Normalizer", "classical", domain="ai.onnx.ml"),
    Operator("OneHotEncoder", "classical", domain="ai.onnx.ml"),
    Operator("SVMClassifier", "classical", domain="ai.onnx.ml"),
    Operator("SVMRegressor", "classical", domain="ai.onnx.ml"),
    Operator("Scaler", "classical", domain="ai.onnx.ml"),
    Operator("TreeEnsemble", "classical", domain="ai.onnx.ml"),
    Operator("TreeEnsembleClassifier", "classical", domain="ai.onnx.ml"),
    Operator("TreeEnsembleRegressor", "classical", domain="ai.onnx.ml"),
    Operator("ZipMap", "classical", domain="ai.onnx.ml", gives="map"),
)
