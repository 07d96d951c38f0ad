"""API keys, stored only as digests, and who a request's caller is."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.serving.addresses import network_of
from qkv.serving.errors import RequestError
from qkv.serving.settings import ApiKey


def new_key() -> str:
    """Return a random key."""
    return f"qkv-{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """Return the digest that is stored for a key; a key is long and random, so SHA-256 suffices."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read a file of keys: each line has a name, a digest and optionally a limit in requests a minute."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot be read as a file of keys: {why}; make one by qkv serve --new-key") from None
    keys = []
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if len(fields) in (2, 3):
            values = dict(zip(("name", "digest", "rate"), fields, strict=False))
            keys.append(parse(ApiKey, values, f"{path}, line {number}"))
        elif fields:
            raise ConfigError(f"{path}, line {number}: got {len(fields)} words, wanted name, digest and perhaps a rate")
    if not keys:
        raise ConfigError(f"{path}: there is no key in it; `qkv serve --new-key NAME` makes one")
    return tuple(keys)


class Caller(NamedTuple):
    """The sender of a request, and the limit that applies to it."""

    name: str  # for the log
    bucket: str  # what is limited together: a key, or an address; an IPv6 client can choose among many, so its network
    rate: int | None  # requests a minute


class Authenticator:
    """Identifies callers by their API key, or by their address where the service has no keys."""

    def __init__(self, keys: Sequence[ApiKey], rate: int | None = None):
        self.keys, self.rate = keys, rate

    def identify(self, key: str | None, address: str) -> Caller:
        """Return the caller; raise if the service has keys and this is none of them."""
        if not self.keys:
            return Caller(address, f"address {network_of(address)}", self.rate)
        given, found = digest(key or ""), None
        for known in self.keys:  # compare all of them, in constant time: timing must not reveal how close a guess is
            if hmac.compare_digest(known.digest, given):
                found = known
        if found is None:
            message = "this API key is not known" if key else "an API key is needed; send Authorization: Bearer KEY"
            raise RequestError(401, "invalid_api_key", message)
        return Caller(found.name, f"key {found.name}", found.rate or self.rate)
