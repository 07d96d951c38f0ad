"""Who may ask, and how often: API keys, of which only digests are kept, and a bucket of requests for each."""

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
from qkv.serving.refusals import Refusal
from qkv.serving.settings import Key, Settings

ADDRESSES = 10_000  # that are remembered at once; those not heard of for the longest are forgotten


def new_key() -> str:
    """A key that nobody can guess."""
    return f"qkv-{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """What is kept of a key; it is random and long, so that nothing slower than SHA-256 is needed."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def read_keys(path: Path) -> tuple[Key, ...]:
    """Keys of a file: a line for each with its name, its digest and, if that is limited, requests a minute."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a file of keys: {error}") from None
    keys = []
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if len(fields) in (2, 3):
            given = dict(zip(("name", "digest", "rate"), fields, strict=False))
            keys.append(parse(Key, given, f"{path}, line {number}"))
        elif fields:
            raise ConfigError(f"{path}, line {number}: got {len(fields)} words, wanted name, digest and perhaps a rate")
    if not keys:
        raise ConfigError(f"{path}: there is no key in it; `qkv serve --new-key NAME` makes one")
    return tuple(keys)


class Caller(NamedTuple):
    """Who asks, and what that counts against."""

    name: str  # for the log
    bucket: str
    rate: int | None  # requests a minute


class Doorkeeper:
    """Lets requests in by their key, no more of them than a key, or an address where there are no keys, has a right to."""

    def __init__(self, settings: Settings):
        self.keys, self.rate = settings.keys, settings.rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was so

    def recognise(self, key: str | None, address: str) -> Caller:
        """Who asks; refused are wrong keys."""
        found = self._known(key)
        if found is None:
            return Caller(address, f"address {address}", self.rate)
        return Caller(found.name, f"key {found.name}", found.rate or self.rate)

    def count(self, caller: Caller) -> None:
        """Note a request; refused are those beyond the rate."""
        if caller.rate is not None:
            self._take(caller.bucket, caller.rate)

    def _known(self, key: str | None) -> Key | None:
        if not self.keys:
            return None
        given, found = digest(key or ""), None
        for one in self.keys:  # all are compared, in constant time, so that no time tells how near a guess was
            if hmac.compare_digest(one.digest, given):
                found = one
        if found is None:
            what = "this API key is not known" if key else "an API key is needed; send Authorization: Bearer KEY"
            raise Refusal(401, "invalid_api_key", what)
        return found

    def _take(self, who: str, rate: int) -> None:
        """Take a request from a bucket that fills at the rate and holds a minute's worth."""
        now = time.monotonic()
        left, before = self._buckets.pop(who, (float(rate), now))
        left = min(float(rate), left + (now - before) * rate / 60)
        self._buckets[who] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise Refusal(429, "rate_limit", f"no more than {rate:,} requests a minute; wait {wait} s", retry_after=wait)
