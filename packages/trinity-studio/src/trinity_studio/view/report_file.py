"""The file of a report: never one of those that it is made of, and never half of one."""

from __future__ import annotations

import secrets
import shutil
import stat
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity_ledger.address import Address

    from trinity_studio.view.run import Run

__all__ = ["refuse", "replace"]

_BEGINS = b"<!doctype html>"
_BESIDE = ("", "-wal", "-shm", "-journal")  # names of what SQLite keeps beside its file


def refuse(path: Path, *, runs: Sequence[Run], ledgers: Sequence[Address]) -> None:
    """Hold that nothing but an older report is lost by writing a report here.

    A device, a pipe and an empty file hold nothing that could be lost.

    Raises:
        ConfigError: the file is a ledger, lies in a run directory, or is neither empty nor HTML.
    """
    try:
        if _is_stream(path):
            return
        why = _refusal(path.resolve(), runs=runs, ledgers=ledgers)
    except (OSError, RuntimeError) as error:  # links in a circle
        why = f"cannot be looked at: {error}"
    if why:
        raise ConfigError(f"--export {path} {why}. Name another file; nothing was written.")


def replace(path: Path, html: bytes) -> None:
    """Write a file beside this one, and have it take its place; a device or a pipe is written to.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    if _is_stream(path):
        path.write_bytes(html)
        return
    target = path.resolve()
    scratch = target.with_name(f".report-{secrets.token_hex(6)}.html")
    try:
        scratch.touch(exist_ok=False)
        if target.exists():
            shutil.copymode(target, scratch)
        scratch.write_bytes(html)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Return whether a path is a device or a pipe, as /dev/stdout mostly is."""
    mode = path.stat().st_mode if path.exists() else 0
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _refusal(target: Path, *, runs: Sequence[Run], ledgers: Sequence[Address]) -> str:
    read = [*ledgers, *(run.ledger for run in runs)]
    for file in (one.file.resolve() for one in read if one is not None and one.file is not None):
        if target in {file.with_name(file.name + end) for end in _BESIDE}:
            return "is the ledger that is read, or lies where SQLite keeps a part of it"
    for run in runs:
        if target.is_relative_to(run.directory.resolve()):
            return f"lies in the run directory {run.directory}, which a report changes nothing in"
    if not target.exists():
        return ""
    if not target.is_file():
        return "is no file"
    with target.open("rb") as file:
        is_report = file.read(len(_BEGINS)).lower() in {b"", _BEGINS}
    return "" if is_report else "is there already, and is no report: it does not begin as HTML"
