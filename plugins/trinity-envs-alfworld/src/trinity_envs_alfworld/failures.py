"""Say of whatever the engine's process raises what it was doing, and what to do now."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import BadTaskError, EnvError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["INSTALL", "as_clear_error"]

INSTALL = f'{sys.executable} -m pip install "alfworld>=0.4.2,<0.6" "textworld[pddl]>=1.7,<1.8"'
_NEEDS = "It is compiled: that needs a C++ compiler, make and a program named python on the PATH"


@contextmanager
def as_clear_error(doing: str) -> Iterator[None]:
    """Name what was being done and the remedy.

    Raises:
        PluginError: a package of the engine is missing.
        BadTaskError: the game cannot be played.
        EnvError: the engine raised, hung or died.
    """
    try:
        yield
    except PluginError as error:
        raise PluginError(
            f"ALFWorld's engine cannot start: {error} Run: {INSTALL}. {_NEEDS}."
        ) from error
    except BadTaskError as error:
        raise BadTaskError(
            f"ALFWorld failed in the {doing}: {error} Its runs have no reward, others go on. Leave "
            f"that game out of the dataset."
        ) from error
    except EnvError as error:
        raise EnvError(
            f"ALFWorld failed in the {doing}: {error} The run has no reward, others go on. "
            f"Where it happens again, leave that game out of the dataset."
        ) from error
