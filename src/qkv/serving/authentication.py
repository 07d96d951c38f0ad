"""API keys, stored only as digests, and a limit on each caller's rate of requests."""

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.serving.errors import RequestError
from qkv.serving.settings import ApiKey, ServiceSettings

MAX_BUCKETS = 10_000  # callers remembered at once; the one silent for the longest is forgotten first


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
        raise ConfigError(f"{path}: cannot be read as a file of keys: {error}") from None
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
    bucket: str
    rate: int | None  # requests a minute


class Authenticator:
    """Identifies callers by their API key, or by their address where the service has no keys."""

    def __init__(self, settings: ServiceSettings):
        self.keys, self.rate = settings.keys, settings.rate

    def identify(self, key: str | None, address: str) -> Caller:
        """Return the caller; raise if the service has keys and this is none of them."""
        if not self.keys:
            return Caller(address, f"address {address}", self.rate)
        given, found = digest(key or ""), None
        for known in self.keys:  # compare all of them, in constant time: timing must not reveal how close a guess is
            if hmac.compare_digest(known.digest, given):
                found = known
        if found is None:
            message = "this API key is not known" if key else "an API key is needed; send Authorization: Bearer KEY"
            raise RequestError(401, "invalid_api_key", message)
        return Caller(found.name, f"key {found.name}", found.rate or self.rate)


class RateLimiter:
    """A token bucket for each caller, which refills at the caller's rate and holds one minute's worth of requests."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and the time of that count

    def count(self, caller: Caller) -> None:
        """Take a request from the caller's bucket; raise if it is empty."""
        if caller.rate is None:
            return
        rate, now = caller.rate, time.monotonic()
        left, before = self._buckets.pop(caller.bucket, (float(rate), now))
        left = min(float(rate), left + (now - before) * rate / 60)
        self._buckets[caller.bucket] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise RequestError(429, "rate_limit", f"no more than {rate:,} requests a minute; wait {wait} s", retry_after=wait)
