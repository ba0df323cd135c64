"""The data set that tune() takes."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from trinity_agents_agentscope import Dataset


def test_P099_a_preview_prints_the_columns(tmp_path, capsys, monkeypatch) -> None:
    rows = [{"question": "2 + 2 ?", "answer": "4"}, {"question": "4 + 4 ?", "answer": "8"}]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "test.jsonl").write_text(f"{json.dumps(rows[0])}\n")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    returned = Dataset(path=str(tmp_path), split="train").preview()

    printed = json.loads(capsys.readouterr().out)
    assert returned == rows
    assert printed == {"question": ["2 + 2 ?", "4 + 4 ?"], "answer": ["4", "8"]}


def test_a_preview_shows_as_many_rows_as_asked(tmp_path, capsys) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))

    assert len(Dataset(path=str(tmp_path)).preview(2)) == 2


def test_a_field_that_is_misspelt_is_refused() -> None:
    with pytest.raises(ValidationError, match="epochs"):
        Dataset(path="rows", epochs=3)
