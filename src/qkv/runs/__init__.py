"""Runs: folders that stand alone. Made by `train`, used through `load`, scored by `evaluate`."""
