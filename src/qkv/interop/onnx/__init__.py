"""Translators as ONNX graphs: one file for each kind of model, writing them, and running them with onnxruntime."""
