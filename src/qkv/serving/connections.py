"""How many connections there may be: in all, from one address, and a few more that only answer health checks."""

import ipaddress
from collections import Counter
from enum import Enum

from qkv.serving.settings import ServiceSettings

RESERVED = 32  # connections beyond the limits, for health checks
RESERVED_PER_ADDRESS = 8
IPV6_NETWORK = 64  # bits of an IPv6 address that name a customer's network; the rest is free to choose


class Place(Enum):
    """What a connection is admitted to."""

    ORDINARY = "every request"
    RESERVED = "health checks"
    NONE = "nothing"


class ConnectionLimits:
    """Counts the open connections of a server."""

    def __init__(self, settings: ServiceSettings):
        self.limits = {
            Place.ORDINARY: (settings.connections, settings.connections_per_address),
            Place.RESERVED: (RESERVED, RESERVED_PER_ADDRESS),
        }
        self.counts = {place: Counter[str]() for place in self.limits}  # by network

    def take(self, address: str) -> Place:
        """Count a new connection from an address; return what it is admitted to."""
        network = network_of(address)
        for place, (most, most_per_address) in self.limits.items():
            if self.counts[place].total() < most and self.counts[place][network] < most_per_address:
                self.counts[place][network] += 1
                return place
        return Place.NONE

    def free(self, address: str, place: Place) -> None:
        """Forget a connection that was counted."""
        if place is not Place.NONE:
            counts, network = self.counts[place], network_of(address)
            counts[network] -= 1
            if not counts[network]:
                del counts[network]


def network_of(address: str) -> str:
    """Return the address whose connections are counted together: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_NETWORK), strict=False))
