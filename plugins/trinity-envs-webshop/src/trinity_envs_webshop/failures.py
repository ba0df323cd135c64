"""Turn whatever the environment raises into one clear error of the run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import EnvError, TrinityError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_env_error"]


@contextmanager
def as_env_error(doing: str) -> Iterator[None]:
    """Let errors that say what to do pass; name the others after what was being done.

    Raises:
        EnvError: anything else went wrong, such as in a tagger or a search engine of the user's.
    """
    try:
        yield
    except TrinityError:
        raise
    except Exception as error:
        raise EnvError(
            f"WebShop failed in {doing}: {type(error).__name__}: {error}. The run has no reward. "
            f"If a tagger or search engine of yours is set, correct it; else check the data with "
            f"trinity plugins setup webshop."
        ) from error
