"""What keeps an external API from being asked, said before a run starts."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from trinity.common.config.model import ExternalModelConfig

__all__ = ["problems_of"]


def problems_of(api: ExternalModelConfig) -> list[str]:
    """Return what is missing or wrong: the client, or variables of the environment."""
    if find_spec("openai") is None:
        return [
            "asks an external API with the package openai. Install it: "
            "pip install 'trinity-lab[api]'."
        ]
    needed = {"address": api.base_url_env, "key": api.api_key_env}
    missing = [
        f"{name} is not set; it holds the {what} of the API. Set it in the environment of "
        f"trinity, or name another variable in model.external_model."
        for what, name in needed.items()
        if not os.environ.get(name)
    ]
    return missing or [*_of_address(api.base_url_env), *_of_key(api.api_key_env)]


def _of_address(name: str) -> list[str]:
    address = os.environ[name]
    if not re.match("https?://", address):
        return [f"{name} begins with neither http:// nor https://. Set the API's whole address."]
    try:
        has_host = bool(urlsplit(address).hostname)
    except ValueError:
        has_host = False
    return [] if has_host else [f"{name} names no host. Set the API's whole address."]


def _of_key(name: str) -> list[str]:
    if re.fullmatch("[!-~]+", os.environ[name]):
        return []
    what = "has a space, a line break or another character that no HTTP header carries"
    return [f"{name} {what}. Set it to the key alone."]
