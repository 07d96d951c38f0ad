"""Checkpoints of Hugging Face transformers, read and written without importing transformers: one file for each family."""
