"""Transformers as CTranslate2 models: writing them, and CTranslate2 as an engine."""
