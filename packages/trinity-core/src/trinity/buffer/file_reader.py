"""The experiences that a file holds, read row by row for as many epochs as are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.formatter import (
    experience_of_row,
    has_pair,
    is_stored_experience,
    pair_of_row,
    text_of_row,
)
from trinity.common.experience import Experience
from trinity.errors import DataError
from trinity.extend import KINDS, get_manager

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import TaskSelector
    from trinity.common.rows import Rows


class FileReader:
    """Gives the experience of each row, in the selector's order."""

    def __init__(
        self,
        rows: Rows,
        *,
        config: ExperienceBufferConfig,
        chat_format: ChatFormat | None,
        total_epochs: int | None,
    ) -> None:
        self.rows = rows
        self._selector = _selector(len(rows), config=config)
        self._num_given = 0
        self._keys = config.format
        self._schema = config.schema_type
        self._chat_format = _with_template(chat_format, config.format.chat_template)
        self._end = None if total_epochs is None else len(rows) * total_epochs

    @property
    def num_left(self) -> int:
        """Return how many experiences are left; without an end, those of the epoch."""
        end = self._end
        if end is None:
            return len(self.rows) - self._num_given % len(self.rows)
        return end - self._num_given

    @property
    def place(self) -> dict[str, Any]:
        return {"position": self._num_given, "selector": self._selector.state_dict()}

    def stand_at(self, place: dict[str, Any]) -> None:
        """Go on from a place; one without the selector's own is a number of rows."""
        self._num_given = place["position"]
        if self._num_given or "selector" in place:
            self._selector.load_state_dict(place.get("selector", {"position": self._num_given}))

    @property
    def is_done(self) -> bool:
        return self.num_left <= 0

    def next_experience(self) -> Experience:
        """Return the experience of the next row."""
        (number,) = self._selector.get_indices(1)
        self._num_given += 1
        row, origin = self.rows[number], str(self.rows.origin(number))
        if is_stored_experience(row):
            return _stored(row, origin=origin)
        if self._chat_format is None:
            raise DataError(
                f"{origin}, is not a stored experience, and without a model there is no chat "
                f"template to tokenize it. Set model.model_path."
            )
        make = self._maker(row)
        made = make(row, chat_format=self._chat_format, keys=self._keys, origin=origin)
        made.info["row"] = origin
        return made

    def _maker(self, row: dict[str, Any]) -> Callable[..., Experience]:
        """Return what makes an experience of the row: by the schema, or else by its keys."""
        makers = {"cpt": text_of_row, "dpo": pair_of_row, "sft": experience_of_row}
        is_pair = self._keys.prompt_type == "chatpair" or has_pair(row, keys=self._keys)
        return makers.get(self._schema or "", pair_of_row if is_pair else experience_of_row)


def _stored(row: dict[str, Any], *, origin: str) -> Experience:
    try:
        return Experience.from_dict(row)
    except (TypeError, ValueError) as e:
        raise DataError(f"{origin}, is an incomplete experience: {e}. Remove the row.") from e


def _selector(num_rows: int, *, config: ExperienceBufferConfig) -> TaskSelector:
    chosen = config.data_selector
    cls = get_manager().load("task_selector", chosen.selector_type or "sequential")
    seed = {} if chosen.seed is None else {"seed": chosen.seed}
    selector: TaskSelector = KINDS["task_selector"].made(
        cls, chosen.kwargs, num_rows=num_rows, **seed
    )
    return selector


def _with_template(chat_format: ChatFormat | None, template: str | None) -> ChatFormat | None:
    if chat_format is None or template is None:
        return chat_format
    return type(chat_format)(chat_format.tokenizer, chat_template=template)
