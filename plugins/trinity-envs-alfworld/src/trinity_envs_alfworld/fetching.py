"""Get the published archives: by download, from files, or from a folder."""

from __future__ import annotations

import logging
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from trinity.errors import DataError

from trinity_envs_alfworld.data_check import GENERATED
from trinity_envs_alfworld.games import DATA_VERSION
from trinity_envs_alfworld.unpacking import MAX_ARCHIVE_BYTES, unpack

__all__ = ["ARCHIVES", "PUBLISHED_AT", "download", "holds_invented", "take"]

PUBLISHED_AT = "https://github.com/alfworld/alfworld/releases/download"
ARCHIVES = (  # trajectories, problems, games: alfworld-download fetches the same
    "0.2.2/json_2.1.1_json.zip",
    "0.2.2/json_2.1.1_pddl.zip",
    "0.4.0/json_2.1.2_tw-pddl.zip",
)
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_log = logging.getLogger("trinity.alfworld")


def download(root: Path, *, url: str = PUBLISHED_AT) -> None:
    """Fetch and unpack the archives; what was cut short goes on where it stopped.

    Raises:
        DataError: the address cannot be reached, or what it sends is no archive.
    """
    root.mkdir(parents=True, exist_ok=True)
    for name in ARCHIVES:
        archive = root / Path(name).name
        address = f"{url.rstrip('/')}/{name}"
        _log.info("fetching %s", address)
        try:
            _fetch(address, archive)
        except OSError as error:  # URLError is one
            raise DataError(
                f"{address} cannot be fetched: {error}. What has come is kept: run the command "
                f"again. Without a network, fetch the three archives of {PUBLISHED_AT} elsewhere "
                f"and run: trinity plugins setup alfworld --from FOLDER"
            ) from error
        unpack(archive, root)
        archive.unlink()


def take(source: Path, root: Path) -> None:
    """Unpack an archive, or the archives of a folder, or copy a folder that was unpacked.

    Raises:
        DataError: there is nothing like that.
    """
    if source.is_file():
        unpack(source, root)
    elif (source / DATA_VERSION).is_dir():
        if source.resolve() != root.resolve():
            shutil.copytree(source, root, copy_function=_copy_file, dirs_exist_ok=True)
    elif archives := sorted(source.glob("*.zip")):
        for archive in archives:
            unpack(archive, root)
    else:
        names = ", ".join(Path(name).name for name in ARCHIVES)
        raise DataError(
            f"{source} is no archive, and no folder with {DATA_VERSION} or with archives in it. "
            f"Give --from a folder that holds {names}."
        )


def holds_invented(source: Path) -> bool:
    """Return whether what ``take`` would unpack or copy are invented games."""
    if source.is_dir():
        return (source / GENERATED).exists()
    if not zipfile.is_zipfile(source):
        return False
    with zipfile.ZipFile(source) as opened:
        return GENERATED in opened.namelist()


def _fetch(address: str, archive: Path) -> None:
    part = archive.with_suffix(".part")
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # all of it has come
            raise
    else:
        with answer, part.open("ab" if answer.status == 206 else "wb") as out:
            while chunk := answer.read(_CHUNK):
                if out.tell() + len(chunk) > MAX_ARCHIVE_BYTES:
                    raise OSError(f"it sends more than {MAX_ARCHIVE_BYTES:,} bytes")
                out.write(chunk)
            left = answer.length or 0
        if left:
            raise OSError(f"the connection ended {left:,} bytes too early")
    part.rename(archive)


def _copy_file(source: str, target: str) -> None:
    """Copy a plain file, or what a link to one leads to; a device or a pipe would have no end."""
    if not stat.S_ISREG(Path(source).stat().st_mode):
        raise DataError(f"{source} is no plain file. Take it out of the folder, then try again.")
    shutil.copy2(source, target)
