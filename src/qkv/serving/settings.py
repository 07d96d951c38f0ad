"""What a service allows."""

from typing import Literal

from pydantic import Field

from qkv.base.config import Config


class Key(Config):
    """An API key, of which only the digest is known."""

    name: str  # for logs and limits
    digest: str = Field(pattern="^[0-9a-f]{64}$")  # SHA-256 of the key
    rate: int | None = Field(default=None, ge=1)  # requests a minute; None is what the service says


class Settings(Config):
    """Limits of a service, who may use it, and how it batches."""

    batch_tokens: int = Field(default=2048, ge=1)  # computed together at most
    wait: float = Field(default=0.005, ge=0, le=10)  # seconds that a text waits for others to be computed with
    queue: int = Field(default=256, ge=1)  # requests that wait or are computed, for each model; more are refused
    time_limit: float = Field(default=60.0, gt=0)  # seconds until a request is given up
    body_bytes: int = Field(default=1_000_000, ge=1)  # of a request
    body_seconds: float = Field(default=10.0, gt=0)  # in which a request must have arrived
    connections: int = Field(default=1000, ge=1)  # open at once
    texts: int = Field(default=256, ge=1)  # in one request
    characters: int = Field(default=50_000, ge=1)  # of all texts of a request together
    new_tokens: int = Field(default=1024, ge=1)  # that a completion may ask for
    look_tokens: int = Field(default=128, ge=1)  # of a text that is looked at; what is seen grows by the square
    alternatives: int = Field(default=10, ge=0)  # that a translation may ask for
    keys: tuple[Key, ...] = ()  # none: everybody may
    rate: int | None = Field(default=None, ge=1)  # requests a minute: of each key, or of each address where there are no keys
    origins: tuple[str, ...] = ()  # web pages of others that may ask (CORS)
    hosts: tuple[str, ...] = ()  # names under which the service may be asked; none: any
    logs: Literal["none", "requests", "texts"] = "requests"  # texts of users are written down for "texts" only
