"""Name what an unexpected error broke."""

from __future__ import annotations

import logging
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.common.value_checks import text_of
from trinity.errors import RunFailedError, TrinityError
from trinity.extend import get_manager
from trinity.extend.watch import HungPartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

_LIBRARIES = ("/torch/", "/transformers/", "/numpy/", "/contextlib.py")
_PLACE, _LOG = "trinity_place", "trinity_log"  # what an error from another process brings along


@contextmanager
def boundary(what: str, *, may_end: bool = False) -> Iterator[None]:
    """Turn an error of a plugin's code, or of a library below it, into one that says where.

    Args:
        what: is done inside, for the message.
        may_end: whether a StopIteration means that nothing is left; else it is an error as others.

    Raises:
        TrinityError: what was raised inside; the log gets both with their tracebacks.
    """
    try:
        yield
    except (TrinityError, KeyboardInterrupt, HungPartError):
        raise
    except BaseException as error:  # asyncio.CancelledError is no Exception
        if may_end and isinstance(error, StopIteration):
            raise
        place, log = getattr(error, _PLACE, "") or place_of(error), getattr(error, _LOG, "")
        raise TrinityError(
            f"{what} failed: {type(error).__name__}: {text_of(error)} at {place}. Correct that, "
            "then run the same command: it continues from what is saved. "
            f"{log or 'trinity.log'} has the traceback."
        ) from error


@contextmanager
def no_exit() -> Iterator[None]:
    """Let nothing inside end the process: ``sys.exit(0)`` would say that the run has finished.

    Raises:
        TrinityError: something tried to, or did not return in time.
    """
    try:
        yield
    except HungPartError as error:
        raise RunFailedError(str(error)) from error
    except SystemExit as error:
        raise TrinityError(
            f"the run was to end by SystemExit({error.code!r}) at {place_of(error)}, and has not "
            "finished. Raise an error there, or return; then run the same command: it goes on from "
            "what is saved."
        ) from error


def try_to(call: Callable[[], None], *, failure: str) -> None:
    """Call a plugin where its failure must stop nothing else: it is told as a warning."""
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the boundary around one plugin
        logger.warning("%s: %s: %s", failure, type(error).__name__, text_of(error))


def marked(error: BaseException, *, log: str) -> BaseException:
    """Return the error with its place and the command that shows its traceback.

    A traceback cannot leave its process; what is marked once stays so on the way up.
    """
    if not isinstance(error, TrinityError | StopIteration) and not hasattr(error, _LOG):
        setattr(error, _PLACE, place_of(error))
        setattr(error, _LOG, log)
    return error


def place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame that is no library's, and whose it is."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(name in frame.filename for name in _LIBRARIES)]
    last = (own or list(frames))[-1]
    plugin = plugin_of(last.filename)
    return f"{last.filename}:{last.lineno}{plugin and f' (plugin {plugin})'}"


def plugin_of(filename: str) -> str:
    """Return the plugin whose file that is, as messages name it; empty: nobody's."""
    for plugin in get_manager().found:
        record = plugin.record
        package = record.module.partition(".")[0]
        if package == "trinity" and record.distribution:
            continue  # the core itself
        is_its = f"/{package}/" in filename or filename.endswith(f"/{package}.py")
        if (record.distribution and is_its) or filename == record.path:
            return record.label
    return ""
