"""The host that clients are given, beside the one that a broker listens at."""

import re
from typing import Final

from lockstep.remoting.settings import is_everywhere, is_ipv6

__all__ = ["why_unreachable"]

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IPV4: Final = re.compile(r"[0-9.]+")


def why_unreachable(host: str, advertised: str) -> str:
    """Why clients cannot connect to the host that they are given; empty if they may."""
    if is_everywhere(advertised):
        return f"host {advertised!r} is every address; give the one that clients must use"
    if is_ipv6(advertised):
        if "%" not in advertised:
            return ""
    elif _NAME.fullmatch(advertised):
        if not (_IPV4.fullmatch(advertised) and is_ipv6(host) and is_everywhere(host)):
            return ""
        return f"host {host!r} is every address of IPv6, and {advertised} is none; host '' is all of both kinds"
    # A zone is of this machine alone.
    return f"{advertised!r} is neither a host name nor an IP address (IPv6 without brackets and zone: ::1)"
