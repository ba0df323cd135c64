"""A file that is opened, and drawn from one end to the other, says what it said."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trinity.common.config import Config
from trinity.common.config.base import StrictModel
from trinity.common.config.load import read_config
from trinity.common.config.paths import models_in
from trinity_studio.studio.document import Document, yaml_text
from trinity_studio.studio.fields import field_at, fields_of

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "packages/trinity-core/tests/config/data/trinity_rft"
FILES = [*sorted(PUBLISHED.glob("*.yaml")), *sorted(ROOT.glob("examples/*/*.yaml"))]
SOME = [  # one in four is always run
    path if number % 4 == 0 else pytest.param(path, marks=pytest.mark.acceptance)
    for number, path in enumerate(FILES)
]
DRAWN = [  # GPUs and no train_batch_size, operators; stages
    PUBLISHED / "examples__grpo_gsm8k_experience_pipeline__gsm8k.yaml",
    pytest.param(ROOT / "examples/quickstart/quickstart.yaml", marks=pytest.mark.acceptance),
]
PARTS = ("Model", "Buffer", "Explorer and Synchronizer", "Trainer", "All Others")


@pytest.mark.parametrize("path", SOME, ids=lambda path: path.stem)
def test_a_file_that_is_opened_and_written_means_the_same(path, tmp_path) -> None:
    written = tmp_path / "written.yaml"
    written.write_text(yaml_text(Document.read(path.read_text(), name=path.name).values))

    assert meaning(written) == meaning(path)


def meaning(path: Path) -> tuple[Any, ...]:
    """Return what a file comes to, what of it was given, and what is wrong with it."""
    reading = read_config(path, env={})
    problems = sorted((one.path, one.message) for one in reading.problems)
    if reading.config is None:
        return None, None, problems
    return reading.config.flat(), reading.config.model_dump(exclude_unset=True), problems


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_looking_at_every_key_of_a_file_changes_none(path, draw_studio) -> None:
    document = Document.read(path.read_text(), name=path.name)
    before = copy.deepcopy(document.values)

    page = draw_studio(document, is_open=True)
    for part in PARTS:
        page.session_state["_mode"], page.session_state["_part"] = "Expert Mode", part
        page.run()
        assert [one.message for one in page.exception] == []

    assert page.session_state["_document"].values == before


def test_every_key_of_the_configuration_is_on_the_page() -> None:
    drawn = {one.path for one in keys_of(Config)}

    assert drawn == set(paths_of(Config))
    assert all(field_at(path) is not None for path in drawn)


def keys_of(model: type[StrictModel], path: str = "") -> Iterator[Any]:
    """Give what the page draws for a section and those below it; of a list, the first entry."""
    for one in fields_of(model, path):
        yield one
        if one.model is not None:
            yield from keys_of(one.model, one.path + (".0" if one.shape == "list" else ""))


def paths_of(model: type[StrictModel], path: str = "") -> Iterator[str]:
    """Give each key that the configuration's models have."""
    for name, info in model.model_fields.items():
        below = f"{path}.{name}" if path else name
        yield below
        models = models_in(info.annotation) if name != "rollout_correction" else []
        is_many = str(info.annotation).startswith(
            ("list", "dict", "Optional[list", "typing.Optional[list")
        )
        is_many = is_many or "list[" in str(info.annotation)
        for inner in models:
            yield from paths_of(inner, below + (".0" if is_many else ""))
