"""Settings of a service: limits, API keys and batching."""

from typing import Literal

from pydantic import Field

from qkv.base.config import Config


class ApiKey(Config):
    """An API key's name and digest; the key itself is stored nowhere."""

    name: str  # for logs and limits
    digest: str = Field(pattern="^[0-9a-f]{64}$")  # SHA-256 of the key
    rate: int | None = Field(default=None, ge=1)  # requests a minute; None: the service's rate


class ServiceSettings(Config):
    """Limits of a service, its API keys, and how it batches."""

    batch_tokens: int = Field(default=2048, ge=1)  # in one batch, at most
    wait: float = Field(default=0.005, ge=0, le=10)  # seconds that a text waits for others to share its batch
    queue: int = Field(default=256, ge=1)  # requests of one model that wait or are computed; more are refused
    time_limit: float = Field(default=60.0, gt=0)  # seconds until a request is given up
    body_bytes: int = Field(default=1_000_000, ge=1)  # of a request
    file_bytes: int = Field(default=5_000_000, ge=1)  # of an uploaded file
    downloads: str | None = None  # folder of translated files until they are fetched; None: a temporary one
    body_seconds: float = Field(default=10.0, gt=0)  # in which a request must arrive
    connections: int = Field(default=1000, ge=1)  # open at once
    texts: int = Field(default=256, ge=1)  # in one request
    characters: int = Field(default=50_000, ge=1)  # of all texts of a request together
    new_tokens: int = Field(default=1024, ge=1)  # that a completion may ask for
    look_tokens: int = Field(default=128, ge=1)  # of a text for /look; attention maps grow quadratically
    alternatives: int = Field(default=10, ge=0)  # that a translation may ask for
    keys: tuple[ApiKey, ...] = ()  # none: no key is needed
    rate: int | None = Field(default=None, ge=1)  # requests a minute of each key, or of each address where there are no keys
    origins: tuple[str, ...] = ()  # web origins of other sites that may send requests (CORS)
    hosts: tuple[str, ...] = ()  # host names that the service accepts; none: any
    logs: Literal["none", "requests", "texts"] = "requests"  # only "texts" writes users' texts to the log
