"""Settings of a service: limits, API keys and batching."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from qkv.base.config import Config
from qkv.serving.addresses import plain_network

# Defaults that differ on a device: a GPU computes larger batches in the same time, so more requests may wait.
DEVICE_DEFAULTS: dict[str, dict[str, Any]] = {"cuda": {"batch_tokens": 16_384, "queue": 1024}}
HOST = r"(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?\.?|\[[0-9a-f:.]+\])"  # a name, an IPv4 address, or an IPv6 address in brackets
ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{HOST}(?::[0-9]{{1,5}})?")
IPV6 = re.compile(r"\[?(?=.*:.*:)[0-9a-f:.]+\]?")
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def parse_origin(given: str) -> str:
    """Return an origin as browsers send it."""
    origin = given.lower()
    if origin != "*" and not ORIGIN.fullmatch(origin):
        raise ValueError("an origin is scheme://host or scheme://host:port, such as https://a.org, or * for all")
    return origin.removesuffix(DEFAULT_PORTS.get(origin.partition(":")[0], " "))


def parse_host_name(given: str) -> str:
    """Return a host name without brackets, as `Host` is compared with it."""
    name = given.lower()
    if ":" in name and IPV6.fullmatch(name):
        return name.strip("[]")
    if ":" in name or not re.fullmatch(HOST, name):
        raise ValueError("a host name is a name or an address alone, such as a.org, without scheme and port")
    return name


def parse_network(given: str) -> str:
    """Return an address or a network as a network."""
    try:
        return plain_network(given)
    except ValueError:
        raise ValueError("a trusted proxy is an address or a network, such as 10.0.0.0/8") from None


Origin = Annotated[str, AfterValidator(parse_origin)]
HostName = Annotated[str, AfterValidator(parse_host_name)]
Network = Annotated[str, AfterValidator(parse_network)]


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
    queued_tokens: int = Field(default=200_000, ge=1)  # of one model that wait or are computed; half of them for one caller
    time_limit: float = Field(default=60.0, gt=0)  # seconds within which a request must have its turn
    body_bytes: int = Field(default=1_000_000, ge=1)  # of a request
    file_bytes: int = Field(default=5_000_000, ge=1)  # of an uploaded file
    downloads: str | None = None  # folder of translated files until they are fetched; None: a temporary one
    body_seconds: float = Field(default=10.0, gt=0)  # in which a request must arrive
    connections: int = Field(default=1000, ge=1)  # open at once
    connections_per_address: int = Field(default=200, ge=1)  # open at once; a proxy in front is one address, and needs more
    texts: int = Field(default=256, ge=1)  # in one request
    characters: int = Field(default=50_000, ge=1)  # of all texts of a request together
    new_tokens: int = Field(default=1024, ge=1)  # that a completion may ask for
    look_tokens: int = Field(default=128, ge=1)  # of a text for /look and the laboratory; attention maps grow quadratically
    patch_tokens: int = Field(default=200_000, ge=1)  # computed for the grids of /patch
    alternatives: int = Field(default=10, ge=0)  # that a translation may ask for
    keys: tuple[ApiKey, ...] = ()  # none: no key is needed
    admin_keys: tuple[ApiKey, ...] = ()  # for /admin; none: there is no /admin
    rate: int | None = Field(default=None, ge=1)  # requests a minute of each key, or of each address where there are no keys
    origins: tuple[Origin, ...] = ()  # web origins of other sites that may send requests (CORS); *: all
    hosts: tuple[HostName, ...] = ()  # host names that the service accepts; none: any
    proxies: tuple[Network, ...] = ()  # whose X-Forwarded-For names the client
    logs: Literal["none", "requests", "texts"] = "requests"  # only "texts" writes users' texts to the log
