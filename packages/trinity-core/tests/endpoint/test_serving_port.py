"""The port of a service."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from trinity.endpoint.serving_room import ServingRoom
from trinity.errors import ConfigError


def test_a_port_that_is_taken_is_told_with_its_setting() -> None:
    room = ServingRoom(host="127.0.0.1", port=0)
    port = urlsplit(room.url).port

    with pytest.raises(ConfigError, match=r"Address already in use. Set explorer.proxy_port to a"):
        ServingRoom(host="127.0.0.1", port=port)
    room.close()
