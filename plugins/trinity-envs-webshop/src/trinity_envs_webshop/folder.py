"""Find the published files in a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trinity.errors import DataError

__all__ = ["DATA_VARIABLE", "WebShopFiles", "data_folder"]

DATA_VARIABLE = "WEBSHOP_DATA"
_REMEDY = (
    "Fetch the three files of princeton-nlp/WebShop into a folder and run: "
    "trinity plugins setup webshop --data FOLDER. Without them, make invented products: "
    "trinity plugins setup webshop --data FOLDER --generate 1000"
)


@dataclass(frozen=True)
class WebShopFiles:
    """The three files of one catalogue."""

    products: Path
    attributes: Path
    human_instructions: Path

    @classmethod
    def in_folder(cls, folder: str | Path) -> WebShopFiles:
        """Return the files of a folder; the full set where it and the small one are there.

        Raises:
            DataError: the folder or a file is missing; says which.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(f"{folder} is no folder with WebShop's data. {_REMEDY}")
        for ending in ("", "_1000"):
            products = folder / f"items_shuffle{ending}.json"
            if products.is_file():
                break
        else:
            raise DataError(f"{folder} holds no items_shuffle.json. {_REMEDY}")
        files = cls(
            products, folder / f"items_ins_v2{ending}.json", folder / "items_human_ins.json"
        )
        missing = [file.name for file in files.all() if not file.is_file()]
        if missing:
            raise DataError(f"{folder} lacks {' and '.join(missing)}. {_REMEDY}")
        return files

    def all(self) -> tuple[Path, Path, Path]:
        """Return the three paths."""
        return self.products, self.attributes, self.human_instructions


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder that was given, or the one the environment names.

    Raises:
        DataError: neither says where the data are.
    """
    named = given or os.environ.get(DATA_VARIABLE)
    if not named:
        raise DataError(
            f"nothing says where WebShop's data are: set {DATA_VARIABLE}, or data of the taskset's "
            f"workflow_args. {_REMEDY}"
        )
    return Path(named).expanduser()
