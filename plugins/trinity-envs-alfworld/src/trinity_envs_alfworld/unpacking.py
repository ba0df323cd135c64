"""Unpack an archive of games from anywhere into a folder, and nothing outside it.

Who made the archive is not known. So its list is read first, and all of it is refused where a
member is no plain file or folder below the folder, or where there would be too much of it.
"""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from typing import TYPE_CHECKING

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["MAX_ARCHIVE_BYTES", "unpack"]

# The published archives hold about 30,000 files, the longest of a few hundred kB.
MAX_ARCHIVE_BYTES = 8 << 30
MAX_BYTES = 16 << 30  # of all files, unpacked
MAX_FILE_BYTES = 256 << 20
MAX_FILES = 500_000
MAX_DEPTH = 12
_PART = re.compile(r"[^\x00-\x1f\x7f/\\:]{1,200}")
_KINDS = {0, stat.S_IFREG, stat.S_IFDIR}  # 0: made where files have no mode
_ENCRYPTED = 1
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)


def unpack(archive: Path, root: Path) -> None:
    """Unpack what is not there yet; a file is there when its size is right.

    Raises:
        DataError: the archive holds what no archive of games does, of which nothing is unpacked
            then; or it is damaged, or the disk is full.
    """
    root.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            problem = _problem(members)
            if not problem:
                for member in members:
                    _extract_missing(opened, member, root)
    except _DAMAGE as error:
        raise DataError(
            f"{archive} cannot be unpacked into {root}: {error}. If it is damaged, delete it and "
            f"fetch it again; if the disk is full, make room."
        ) from error
    if problem:
        raise DataError(
            f"{archive} is no archive of games: {problem}. Nothing of it was unpacked; take the "
            f"published archives, or one that trinity plugins setup alfworld made."
        )


def _problem(members: Sequence[zipfile.ZipInfo]) -> str:
    """Return what is wrong with the list of an archive; empty: nothing."""
    if len(members) > MAX_FILES:
        return f"it holds {len(members):,} files, more than {MAX_FILES:,}"
    num_bytes = sum(member.file_size for member in members)
    if num_bytes > MAX_BYTES:
        return f"it would take {num_bytes:,} bytes on the disk, more than {MAX_BYTES:,}"
    names: set[str] = set()
    for member in members:
        wrong = _member_problem(member)
        if not wrong and member.filename in names:
            wrong = "is there twice"
        if wrong:
            return f"its member {member.orig_filename[:200]!r} {wrong}"
        names.add(member.filename)
    return ""


def _member_problem(member: zipfile.ZipInfo) -> str:
    parts = member.orig_filename.removesuffix("/").split("/")
    if len(parts) > MAX_DEPTH or not all(_is_name(part) for part in parts):
        return "is no plain path below the folder"
    if stat.S_IFMT(member.external_attr >> 16) not in _KINDS:
        return "is a link or a device"
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if member.file_size > MAX_FILE_BYTES:
        return f"is longer than {MAX_FILE_BYTES:,} bytes"
    return ""


def _is_name(part: str) -> bool:
    return part.strip(". ") != "" and _PART.fullmatch(part) is not None


def _extract_missing(opened: zipfile.ZipFile, member: zipfile.ZipInfo, root: Path) -> None:
    """Unpack a file; one that is damaged is not left there, for its size may be right."""
    there = root / member.filename
    if there.is_file() and there.stat().st_size == member.file_size:
        return
    try:
        opened.extract(member, root)
    except _DAMAGE:
        if not member.is_dir():
            there.unlink(missing_ok=True)
        raise
