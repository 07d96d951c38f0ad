"""Errors that the engines of other programs share."""

from qkv.base.errors import ConfigError

DAMAGED_COPY = (
    "the model gives no probabilities (NaN or infinite); the weights of this copy are damaged: "
    "see whether qkv's own engine can use the run, and export it again"
)


def refuse_unsupported(engine: str, requested: dict[str, bool]) -> None:
    """Refuse the first option that was requested of those that an engine does not have, or does otherwise than ours."""
    for name, wanted in requested.items():
        if wanted:
            raise ConfigError(f"{name} is not for the engine {engine}; use qkv's own engine for it, or leave it out")
