"""A trained model in other programs' formats, and those programs as engines: CTranslate2, ONNX."""
