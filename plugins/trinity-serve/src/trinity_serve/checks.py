"""What a service cannot do with the settings that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_ledger.address import db_path
from trinity_ledger.endless import length_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

__all__ = ["serve_problems"]

_STORAGE = "buffer.trainer_input.experience_buffer.storage_type"
_ENDLESS = "a service runs until it is stopped"


def serve_problems(config: Config) -> list[Problem]:
    """Return what a service of this configuration could not do."""
    return [
        *_of_database(config),
        *_of_buffer(config),
        *length_problems(config, what_runs=_ENDLESS),
        *_of_engines(config),
        *_of_auxiliary_models(config),
    ]


def _of_database(config: Config) -> Iterator[Problem]:
    url = config.explorer.db_url
    if url is not None and db_path(url) is None:
        what = f"{url!r} is not a SQLite file, but mode serve stores recorded calls in one."
        yield config.source.problem("explorer.db_url", what, "Give a path, or leave it out.")


def _of_buffer(config: Config) -> Iterator[Problem]:
    buffer = config.buffer.trainer_input.experience_buffer
    assert buffer is not None, "resolve fills it in"
    if not config.has_trainer and buffer.storage_type == "queue":
        what = "is queue, but without a section trainer nothing reads the queue."
        remedy = "Add a section trainer, or use file, and give its path."
        yield config.source.problem(_STORAGE, what, remedy)


def _of_engines(config: Config) -> Iterator[Problem]:
    engines, wanted = (
        config.explorer.rollout_model.engine_num,
        config.explorer.min_running_model_num,
    )
    if engines > 1 and wanted >= engines:
        what = f"is {wanted} of {engines} engines, so no engine could ever load new weights."
        remedy = f"Use {engines - 1} or less; engines load weights one after the other."
        yield config.source.problem("explorer.min_running_model_num", what, remedy)


def _of_auxiliary_models(config: Config) -> Iterator[Problem]:
    for section in config.explorer.auxiliary_models:
        if section.external_model_config.enable:
            what = (
                f"has {section.name!r} behind an external API, and a service does not proxy APIs."
            )
            remedy = "Remove it; clients can call that API themselves."
            yield config.source.problem("explorer.auxiliary_models", what, remedy)
