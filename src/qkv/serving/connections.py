"""How many connections there may be: in all, from one address, and a few more that only answer health checks."""

import ipaddress
from enum import Enum

from qkv.serving.addresses import network_of
from qkv.serving.errors import RequestError
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedLimits

RESERVED = 32  # connections beyond the limits, for health checks
RESERVED_PER_ADDRESS = 8
ACCEPTING = "accepting"  # name under which each process that accepts connections holds 1


class Place(Enum):
    """What a connection is admitted to."""

    ORDINARY = "every request"
    RESERVED = "health checks"
    NONE = "nothing"


class ConnectionLimits:
    """Counts the open connections of all processes of a service; a trusted proxy may hold as many as there are in all."""

    def __init__(self, settings: ServiceSettings, shared: SharedLimits):
        self.shared, self.proxies = shared, [ipaddress.ip_network(network) for network in settings.proxies]
        self.limits = {
            Place.ORDINARY: (settings.connections, settings.connections_per_address),
            Place.RESERVED: (RESERVED, RESERVED_PER_ADDRESS),
        }

    def take(self, address: str) -> Place:
        """Count a new connection from an address; return what it is admitted to."""
        network = network_of(address)
        for place, (most, most_per_address) in self.limits.items():
            whole, own = f"connections to {place}", f"connections to {place} of {network}"
            try:
                if not self.shared.hold(whole, 1, most):
                    continue
                if self.shared.hold(own, 1, most if self._trusts(address) else most_per_address):
                    return place
            except RequestError:  # too many addresses at once
                pass
            self.shared.release(whole, 1)
        return Place.NONE

    def free(self, address: str, place: Place) -> None:
        """Forget a connection that was counted."""
        if place is not Place.NONE:
            self.shared.release(f"connections to {place}", 1)
            self.shared.release(f"connections to {place} of {network_of(address)}", 1)

    def begin_accepting(self) -> None:
        """Count this process among those that accept connections."""
        self.shared.hold(ACCEPTING, 1, self.shared.processes)

    def end_accepting(self) -> None:
        """Leave new connections to other processes."""
        self.shared.release(ACCEPTING, 1)

    def surplus(self, more: int = 0) -> float:
        """Return how many connections this process has beyond an equal share, once it has counted `more`."""
        try:
            own = self.shared.held_by_each(f"connections to {Place.ORDINARY}")
            accepting = self.shared.held_by_each(ACCEPTING)
        except RequestError:  # too many addresses at once
            return 0.0
        own[self.shared.process] += more
        share = sum(held for held, accepts in zip(own, accepting, strict=True) if accepts) / max(1, sum(accepting))
        return own[self.shared.process] - share

    def _trusts(self, address: str) -> bool:
        try:
            return any(ipaddress.ip_address(address) in network for network in self.proxies)
        except ValueError:
            return False
