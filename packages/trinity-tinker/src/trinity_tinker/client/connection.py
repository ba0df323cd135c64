"""The service that a run trains and samples with, by its published SDK."""

from __future__ import annotations

import logging
import os
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from contextlib import contextmanager
from http.client import HTTPException
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "base_model_of",
    "connected",
    "end_session",
    "finished",
    "missing_sdk",
    "missing_service",
    "naming",
]

logger = logging.getLogger("trinity.tinker")

_PROBE_S = 10.0
_ALIVE = {401, 403}  # it wants a key, which the SDK has
_FIRST_S = 60.0  # for its first answer to a request with the key
_LIMIT_S = 3600.0  # for one answer of the service
_END_S = 15.0  # for the last one
_OF_SDK = " for self.request_id="  # before what the SDK says of itself, behind a server's words


def missing_sdk() -> list[str]:
    """Return what to say where the SDK is not installed; else nothing."""
    if find_spec("tinker") is not None:
        return []
    return ["model.tinker needs the package tinker: pip install 'trinity-tinker[sdk]'."]


def missing_service() -> str | None:
    """Return what the checks of the trainer and the engine lack to be tried; None: nothing."""
    if missing := missing_sdk():
        return missing[0]
    if not os.environ.get("TINKER_BASE_URL"):  # noqa: TID251 -- as the SDK
        return "TINKER_BASE_URL names none"
    return None


def connected(base_url: str | None) -> Any:  # Any: a ServiceClient
    """Return a client of a service; the SDK reads its key from TINKER_API_KEY.

    Args:
        base_url: None: the SDK reads TINKER_BASE_URL, or takes its own.

    Raises:
        ConfigError: the SDK is not installed or has no key, the service refuses the key, or it does
            not answer.
    """
    if missing := missing_sdk():
        raise ConfigError(missing[0])
    import tinker

    url = base_url or os.environ.get("TINKER_BASE_URL")  # noqa: TID251 -- as the SDK
    _refuse_silent(url)
    try:
        _first_answer(base_url).result(_FIRST_S)
        return tinker.ServiceClient(base_url=base_url)
    except TimeoutError as error:
        raise ConfigError(
            f"the Tinker service at {url or 'its usual address'} says that it is alive (healthz), "
            f"and has not answered get_server_capabilities for {_FIRST_S:g} s. Look at its log, or "
            f"use another: model.tinker.base_url (or TINKER_BASE_URL)."
        ) from error
    except (tinker.TinkerError, ValueError, RuntimeError) as error:
        if getattr(error, "status_code", None) in _ALIVE:
            raise ConfigError(
                f"the Tinker service at {url or 'its usual address'} refuses the key in "
                f"TINKER_API_KEY: {error}. Set one of the keys that it was started with; "
                f"`trinity tinker serve` prints it, unless TRINITY_TINKER_KEYS has them."
            ) from error
        raise ConfigError(
            f"model.tinker: no connection to the service: {error}. Set TINKER_API_KEY, and "
            f"model.tinker.base_url or TINKER_BASE_URL."
        ) from error


def _first_answer(base_url: str | None) -> Future[Any]:  # Any: of the SDK
    """Return what the service serves, asked for in a thread: the SDK itself tries for minutes."""
    import tinker

    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            rest = tinker.RestClient(base_url=base_url)
            answer.set_result(finished(rest.get_server_capabilities(), limit_s=_FIRST_S))
        except Exception as error:  # noqa: BLE001 -- raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=ask, name="tinker-first-answer", daemon=True).start()
    return answer


def _refuse_silent(url: str | None) -> None:
    """Hold that a service answers at all: the SDK would try for minutes."""
    if url is None:
        return  # the SDK's own
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/api/v1/healthz", timeout=_PROBE_S) as told:
            told.read()
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code in _ALIVE:
            return
        raise ConfigError(
            f"no Tinker service answers at {url}: {error}. Start it, or correct "
            f"model.tinker.base_url (or TINKER_BASE_URL)."
        ) from error


def base_model_of(base_url: str | None, model_path: str) -> str:
    """Return the name by which a service knows a model: its id, or the end of its folder's path.

    Raises:
        ConfigError: the service does not serve it.
    """
    import tinker

    with naming("get_server_capabilities"):
        models = finished(tinker.RestClient(base_url=base_url).get_server_capabilities())
    known = [str(model.model_name) for model in models.supported_models]
    for name in known:
        if model_path == name or model_path.rstrip("/").endswith(f"/{name}"):
            return name
    raise ConfigError(
        f"model.model_path is {model_path}, and the Tinker service serves {', '.join(known)}. Use "
        f"one of these, or a folder whose path ends in one, which has its tokenizer."
    )


def finished(given: Any, *, limit_s: float = _LIMIT_S) -> Any:  # Any: of the SDK
    """Return what a call of the SDK gives: of a future, its result.

    The SDK repeats a poll for ever; here a service that is gone for so long ends the wait.

    Raises:
        TimeoutError: there is none after so many seconds.
    """
    return given.result(timeout=limit_s) if hasattr(given, "result") else given


def end_session(service: Any) -> None:  # Any: a ServiceClient
    """Tell a service that its session is over; what is saved stays.

    One that does not hear it ends the session itself, once no more heartbeats come.
    """
    import tinker

    try:
        finished(service.close("success"), limit_s=_END_S)
    except (TimeoutError, tinker.TinkerError, ValueError, RuntimeError) as error:
        logger.warning("the Tinker service was not told that the session is over: %r", error)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Raise what the service refuses, or how it fails, as an error of the model.

    Raises:
        ModelError: with the service's own words.
    """
    import tinker

    try:
        yield
    except TimeoutError as error:
        text = f"the Tinker service has not answered {what} for {_LIMIT_S:.0f} s."
        raise ModelError(f"{text} Is it alive? The same command continues the run.") from error
    except (tinker.TinkerError, ValueError, RuntimeError) as error:
        words = str(error).removeprefix("Request failed: ").partition(_OF_SDK)[0]
        raise ModelError(f"the Tinker service failed in {what}: {words}") from error
