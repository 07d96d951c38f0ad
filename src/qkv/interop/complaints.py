"""What the engines of other programs say alike when something cannot be done."""

from qkv.base.errors import ConfigError

BROKEN_COPY = (
    "the model gives no probabilities (NaN or infinite); the weights of this copy are damaged: "
    "see whether qkv's own engine can use the run, and export it again"
)


def refuse(engine: str, asked: dict[str, bool]) -> None:
    """Refuse the first thing that was asked for, of those that an engine would do otherwise than we do, or not at all."""
    for name, wanted in asked.items():
        if wanted:
            raise ConfigError(f"{name} is not for the engine {engine}; use qkv's own engine for it, or leave it out")
