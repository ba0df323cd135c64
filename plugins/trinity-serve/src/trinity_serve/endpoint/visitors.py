"""One more key of a run's server: who shows it asks the model, and is part of no run."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from typing import TYPE_CHECKING

from trinity.common.ports import RunKey

from trinity_serve.endpoint.keys import Entry, KeyRing
from trinity_serve.endpoint.session import Session

if TYPE_CHECKING:
    from trinity.common.models.model import ModelWrapper

NO_KEY = "EMPTY"  # as it is published
_BATCH = "visit"  # of the keys that seed requests


class Visitors:
    """Lets in who shows the key and asks from this machine; lives on the loop of the server.

    Args:
        key: that is let in; ``EMPTY``, or nothing: none is.
    """

    def __init__(self, key: str) -> None:
        self._key = b"" if key == NO_KEY else key.encode()
        self._model: ModelWrapper | None = None
        self._num_calls = 0

    def meet(self, model: ModelWrapper) -> None:
        """Let the trained model of a run that begins be what is asked; from any thread."""
        self._model = model

    def entry(self, key: str, *, client: str, keys: KeyRing) -> Entry | None:
        """Return what stands for one call, which is a run of its own; None: the key is another.

        Args:
            key: that was shown.
            client: the address that the call came from.
            keys: of the server.
        """
        model = self._model
        is_key = hmac.compare_digest(key.encode("utf-8", "surrogateescape"), self._key)
        if not (self._key and is_key and model is not None and _is_here(client)):
            return None
        self._num_calls += 1
        # Not a first request: those of the runs wait for each other, and would for it.
        own = model.for_run(RunKey(batch=_BATCH, task=self._num_calls, request=1))
        session = Session(own, keys=keys, base_url="", loop=asyncio.get_running_loop())
        return Entry(session=session, agent="", record=False, force_sampling=False)


def _is_here(client: str) -> bool:
    """Return whether an address is of this machine's loopback."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
