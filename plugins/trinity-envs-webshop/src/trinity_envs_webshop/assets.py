"""Check the data, and build the index beside them once for all runs of a machine."""

from __future__ import annotations

from pathlib import Path

from trinity.errors import DataError

from trinity_envs_webshop.catalogue_build import built_folder, is_built
from trinity_envs_webshop.folder import WebShopFiles, data_folder
from trinity_envs_webshop.goal import checked_instructions
from trinity_envs_webshop.synthetic import write_catalogue

__all__ = ["fetch", "missing"]


def missing(*, data: str | None = None) -> str | None:
    """Return what is missing of the data; None: all is there and the index is built.

    Args:
        data: the folder; else the one that WEBSHOP_DATA names.
    """
    try:
        files = WebShopFiles.in_folder(data_folder(data))
    except DataError as error:
        return str(error).rstrip(".")
    return None if is_built(files) else f"the index of {files.products} is not built"


def fetch(*, data: str | None = None, generate: str | int | None = None) -> None:
    """Check the data and build their index; or make a synthetic catalogue first.

    Args:
        data: the folder; else the one that WEBSHOP_DATA names.
        generate: how many invented products to make there first; else the files are there.

    Raises:
        DataError: the files are missing or damaged, or there are other files in the folder.
    """
    folder = data_folder(data)
    if generate is not None:
        write_catalogue(Path(folder), num_products=_number(generate))
    files = WebShopFiles.in_folder(folder)
    checked_instructions(files.human_instructions)
    built_folder(files)


def _number(given: str | int) -> int:
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        raise DataError(f"--generate is {given!r}. Give how many products to make: 1 or more.")
    return number
