"""Corpora in every format, their filtering, tokenizers, sentence splitting and metrics. Imports no torch."""
