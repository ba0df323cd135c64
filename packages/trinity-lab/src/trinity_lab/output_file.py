"""A file that a command is told to write: whole, or as it was before."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def is_standard_output(path: Path) -> bool:
    """Return whether a path is where this process prints, as /dev/stdout."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # no such file yet, or nothing to print to
        return False


@contextmanager
def whole_file(path: Path, *, run: Path) -> Iterator[Path]:
    """Yield a file to write to, which takes the place of ``path`` at the end of the block.

    A device or a pipe is written to itself.

    Args:
        path: as the user named it.
        run: whose files are left as they are.

    Raises:
        ConfigError: the path is a file of the run directory.
        OSError: it cannot be written; what was there is as before.
    """
    target = path.resolve()
    if target.exists() and target.is_relative_to(run.resolve()):
        raise ConfigError(
            f"{path} exists in the run directory {run} and may be a file of the run. "
            f"Name another file; nothing was written."
        )
    if path.exists() and not path.is_file():
        yield path
        return
    scratch = target.with_name(f".{target.name[:100]}-{secrets.token_hex(6)}")
    try:
        scratch.touch(exist_ok=False)
        if target.exists():
            shutil.copymode(target, scratch)
        yield scratch
        scratch.replace(target)
    except OSError as error:
        if error.filename == str(scratch):  # the user knows the other name
            error.filename = str(path)
        raise
    finally:
        scratch.unlink(missing_ok=True)
