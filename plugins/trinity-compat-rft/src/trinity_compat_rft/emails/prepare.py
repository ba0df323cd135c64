"""Make the database of mails that ``email_search_workflow`` searches.

    python -m trinity_compat_rft.emails.prepare FILE [--source corbt/enron-emails]

The source is a data set of the Hugging Face Hub, or a folder or file of one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trinity_compat_rft.emails.mailbox import write_mailbox

__all__ = ["generate_database", "main"]

DEFAULT_REPO_ID = "corbt/enron-emails"


def generate_database(
    repo_id: str = DEFAULT_REPO_ID,
    db_path: str | Path = "enron_emails.db",
    overwrite: bool = False,  # noqa: FBT001, FBT002 -- published
) -> None:
    """Write the mails of a data set into a file; one that is there stays, unless ``overwrite``."""
    from datasets import load_dataset  # type: ignore[import-untyped]

    path = Path(db_path)
    if path.exists() and not overwrite:
        sys.stdout.write(f"{path} is there already.\n")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = Path(repo_id)
    rows = (
        load_dataset("parquet", data_files=str(source), split="train")
        if source.suffix == ".parquet"
        else load_dataset(repo_id, split="train")
    )
    half = path.with_name(f".{path.name}.half")
    half.unlink(missing_ok=True)
    number = write_mailbox(half, rows)
    half.replace(path)
    sys.stdout.write(f"{path}: {number} mails\n")


def main() -> None:
    """Write the file that the command line names."""
    parser = argparse.ArgumentParser(description="Make a database of mails.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--source", default=DEFAULT_REPO_ID)
    given = parser.parse_args()
    generate_database(given.source, given.file)


if __name__ == "__main__":
    main()
