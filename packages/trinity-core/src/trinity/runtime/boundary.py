"""Name what an unexpected error broke."""

from __future__ import annotations

import logging
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["boundary"]

logger = logging.getLogger(__name__)

_LIBRARIES = ("/torch/", "/transformers/", "/numpy/", "/contextlib.py")


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Turn an error of a plugin's code, or of a library below it, into one that says where.

    Raises:
        TrinityError: what was raised inside, with its traceback in the log.
    """
    try:
        yield
    except (TrinityError, StopIteration):
        raise
    except Exception as error:
        logger.info("%s failed", what, exc_info=True)
        text = " ".join(str(error).split())
        raise TrinityError(
            f"{what} failed: {type(error).__name__}: {text} at {_where(error)}. Correct that, then "
            f"run the same command: it goes on from what is saved. trinity.log has the traceback."
        ) from error


def _where(error: Exception) -> str:
    """Return file and line of the innermost frame that is no library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(name in frame.filename for name in _LIBRARIES)]
    last = (own or list(frames))[-1]
    return f"{last.filename}:{last.lineno}"
