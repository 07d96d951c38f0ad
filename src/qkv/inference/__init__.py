"""Loaded runs, ready to use: translator, text encoder, text generator, infiller."""
