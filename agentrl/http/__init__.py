"""The HTTP servers of agentrl: the base of our own, and what every server demands of a request."""

from agentrl.http.handler import HttpHandler, HttpServer, listener, url_of
from agentrl.http.request_limits import (
    LIMITS,
    HttpLimits,
    LimitedApp,
    Refusal,
    host_names,
    is_loopback,
    json_object,
    limited_protocol,
)

__all__ = [
    "LIMITS",
    "HttpHandler",
    "HttpLimits",
    "HttpServer",
    "LimitedApp",
    "Refusal",
    "host_names",
    "is_loopback",
    "json_object",
    "limited_protocol",
    "listener",
    "url_of",
]
