"""Addresses of clients, as limits and logs see them."""

import ipaddress

IPV6_NETWORK = 64  # bits of an IPv6 address that name a customer's network; the rest is free to choose


def network_of(address: str) -> str:
    """Return the address whose connections and requests are counted together: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_NETWORK), strict=False))
