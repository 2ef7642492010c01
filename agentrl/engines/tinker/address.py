"""The address of a training service: its form, and whether anything listens there."""

import ipaddress
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentrl.engines.tinker.service_errors import ServiceError
from agentrl.secret import hidden_url

REACH_S = 10.0  # longest time in seconds for opening a connection
PORTS = {"http": 80, "https": 443}


def checked(url: str, option: str) -> str:
    """The address, without a slash at its end.

    Args:
        url: the address; empty for the SDK's default.
        option: name of the option in messages.

    Raises:
        ServiceError: it is no address, or has a user or a password.
    """
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        raise ServiceError(f"{option} = {hidden_url(url)!r} is no address: write http://HOST:PORT")
    if parts.username or parts.password or parts.query:
        raise ServiceError(
            f"{option} = {hidden_url(url)!r} has a user, a password or a query: leave them out, and set the "
            "environment variable TINKER_API_KEY to the key"
        )
    return url.rstrip("/")


def is_local(url: str) -> bool:
    """Is it an address of this machine alone?"""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reach(url: str, option: str) -> None:
    """Open a connection and close it, because the SDK would try for minutes where nothing listens.

    Nothing is tried for the SDK's default address, and for addresses behind a proxy.

    Raises:
        ServiceError: nothing listens at the address.
    """
    parts = urlsplit(url)
    if not url or not parts.hostname or (parts.scheme in getproxies() and not proxy_bypass(parts.hostname)):
        return
    try:
        socket.create_connection((parts.hostname, parts.port or PORTS[parts.scheme]), REACH_S).close()
    except OSError as error:
        raise ServiceError(
            f"no training service answers at {hidden_url(url)} ({error.strerror or error}): start it, or correct "
            f"{option}"
        ) from None
