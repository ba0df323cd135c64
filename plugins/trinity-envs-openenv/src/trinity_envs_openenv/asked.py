"""Ask a server by HTTP, one of this machine without a proxy."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import urlsplit

__all__ = ["LOOPBACK", "asked"]

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def asked(url: str, *, timeout_s: float) -> Any:  # Any: http.client.HTTPResponse, of http
    """Return the answer, to be closed.

    Raises:
        OSError: there is none, or it is an error (urllib.error.HTTPError).
    """
    proxies = {} if urlsplit(url).hostname in LOOPBACK else None  # None: those of the environment
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    return opener.open(url, timeout=timeout_s)
