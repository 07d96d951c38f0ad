"""Addresses of clients, as limits and logs see them."""

import ipaddress

IPV6_NETWORK = 64  # bits of an IPv6 address that name a customer's network; the rest is free to choose
MAPPED = 96  # bits in front of an IPv4 address that is written as one of IPv6


def plain_address(address: str) -> str:
    """Return an address; for one of IPv4 that a socket of IPv6 sees as ::ffff:10.0.0.1, the one of IPv4."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return address if mapped is None else str(mapped)


def plain_network(network: str) -> str:
    """Return an address or a network as a network, as `plain_address` returns addresses; raise ValueError if it is neither."""
    found = ipaddress.ip_network(network, strict=False)
    mapped = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    return str(found if mapped is None or found.prefixlen < MAPPED else ipaddress.ip_network((mapped, found.prefixlen - MAPPED)))


def network_of(address: str) -> str:
    """Return the address whose connections and requests are counted together: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(plain_address(address.partition("%")[0]))
    except ValueError:
        return address
    return str(found if found.version == 4 else ipaddress.ip_network((found, IPV6_NETWORK), strict=False))
