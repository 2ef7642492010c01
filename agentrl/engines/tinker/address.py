"""The address of a training service: its form, its key, and whether anything listens there."""

import math
import os
import socket
import threading
import time
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentrl.engines.tinker.sdk_calls import LOOK_S
from agentrl.engines.tinker.service_errors import ServiceError
from agentrl.http import is_loopback
from agentrl.secret import address_fault, hidden_url

ADDRESS = "TINKER_BASE_URL"  # environment variable
KEYS = ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")  # environment variables: a key, or a command that prints one
REACH_S = 10.0  # longest time in seconds for opening a connection
REFUSALS = 10  # looks, one per LOOK_S, after which a server that refuses connections is lost
MANY = 3  # looks that are this much closer are one look, and a pause that is this much longer begins anew
PORTS = {"http": 80, "https": 443}


def checked(url: str, option: str) -> str:
    """The address, without a slash at its end.

    Args:
        url: the address; empty for the SDK's default.
        option: name of the option in messages.

    Raises:
        ServiceError: see `agentrl.secret.address_fault`.
    """
    fault = address_fault(url, KEYS[0]) if url else ""
    if fault:
        raise ServiceError(f"{option} = {hidden_url(url)!r} {fault}")
    return url.rstrip("/")


def is_local(url: str) -> bool:
    """Is it an address of this machine alone?"""
    return is_loopback(urlsplit(url).hostname or "")


def service_address(url: str) -> str:
    """The address, or that of the environment if it is empty; empty for the hosted service."""
    return url or os.environ.get(ADDRESS, "")


def check_key(url: str, who: str) -> None:
    """Is there a key for a service? A service on this machine needs none.

    Args:
        url: the address; empty for the hosted service.
        who: the service in messages.

    Raises:
        ServiceError: the environment has none.
    """
    if not is_local(url) and not any(os.environ.get(name) for name in KEYS):
        raise ServiceError(f"{who} needs a key: set the environment variable {KEYS[0]} (or {KEYS[1]})")


class Presence:
    """Looks whether anything listens at an address. The SDK itself would try for minutes or hours where nothing does.

    Nothing is tried for the SDK's default address, and for addresses behind a proxy. Any thread may look.

    Args:
        url: the address; empty for the SDK's default.
    """

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, threading.Lock()
        self._refusals, self._at = 0, -math.inf

    def check(self, option: str) -> None:
        """Open a connection and close it.

        Raises:
            ServiceError: that is not possible; the sentence names the option with the address.
        """
        try:
            self._connect()
        except OSError as error:
            raise ServiceError(
                f"no training service answers at {hidden_url(self._url)} ({error.strerror or error}): start it, or "
                f"correct {option}"
            ) from None

    def look(self) -> None:
        """Look again, if the last look was not just now.

        Raises:
            ConnectionRefusedError: connections were refused in each of the last REFUSALS looks.
        """
        if not self._lock.acquire(blocking=False):
            return  # somebody else looks
        try:
            now = time.monotonic()
            if now - self._at > MANY * LOOK_S:
                self._refusals = 0  # nobody looked meanwhile
            if now - self._at > LOOK_S / MANY:
                self._at = now
                self._refusals = self._refusals + 1 if self._refused() else 0
            if self._refusals >= REFUSALS:
                raise ConnectionRefusedError
        finally:
            self._lock.release()

    def _refused(self) -> bool:
        try:
            self._connect()
        except ConnectionRefusedError:
            return True
        except OSError:  # such as a time-out, because it is busy
            return False
        return False

    def _connect(self) -> None:
        parts = urlsplit(self._url)
        if parts.hostname and not (parts.scheme in getproxies() and not proxy_bypass(parts.hostname)):
            socket.create_connection((parts.hostname, parts.port or PORTS[parts.scheme]), REACH_S).close()
