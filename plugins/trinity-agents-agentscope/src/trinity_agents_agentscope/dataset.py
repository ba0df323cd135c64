"""``Dataset``: the tasks of ``tune()``, as published."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Dataset"]


class Dataset(BaseModel):
    """Rows that ``datasets.load_dataset`` reads, for ``train_dataset`` and ``eval_dataset``.

    It has the fields of ``agentscope.tuner.DatasetConfig``, and ``tune()`` takes either.
    """

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="folder, file or Hugging Face id")
    name: str | None = Field(None, description="configuration of the dataset")
    split: str | None = Field("train", description="part of the dataset")
    total_epochs: int = Field(1, description="passes over the rows; wins over the config file's")
    total_steps: int | None = Field(None, description="steps; wins over total_epochs")

    def preview(self, n: int = 5) -> list[dict[str, Any]]:
        """Print the first rows column by column, and return them.

        Args:
            n: how many rows.
        """
        from datasets import load_dataset

        rows = load_dataset(path=self.path, name=self.name, split=self.split, streaming=True)
        first = [dict(row) for row in islice(rows, n)]
        names = list(dict.fromkeys(name for row in first for name in row))
        columns = {name: [row.get(name) for row in first] for name in names}
        text = json.dumps(columns, indent=2, ensure_ascii=False, default=str)
        sys.stdout.write(f"{text}\n")
        return first
