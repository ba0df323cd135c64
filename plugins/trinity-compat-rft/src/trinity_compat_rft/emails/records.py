"""What the parts of the mail search hand to each other."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

__all__ = ["AnswerModel", "Email", "FinalRubric", "QueryModel", "SearchResult"]


def _as_day(value: Any) -> Any:  # Any: a cell of somebody's data
    return value.strftime("%Y-%m-%d") if isinstance(value, datetime.date) else value


class QueryModel(BaseModel):
    """A row: a question about somebody's mails, and where its answer stands."""

    id: int
    question: str
    answer: str
    message_ids: list[str]  # of the mails that say it, the most telling first
    how_realistic: float
    inbox_address: str  # whose mails are searched
    query_date: Annotated[str, BeforeValidator(_as_day)]  # "YYYY-MM-DD", today for the agent


class AnswerModel(BaseModel):
    """What an agent ends its search with."""

    answer: str = Field(description='The answer; "I don\'t know" if you did not find it.')
    sources: list[str] = Field(
        description="The message_id of each mail that the answer stands in; empty if there is none."
    )


class Email(BaseModel):
    """A mail."""

    message_id: str
    date: str  # "YYYY-MM-DD HH:MM:SS"
    subject: str | None = None
    from_address: str | None = None
    to_addresses: list[str] = []
    cc_addresses: list[str] = []
    bcc_addresses: list[str] = []
    body: str | None = None
    file_name: str | None = None


@dataclass
class SearchResult:
    """A mail that was found, and the words around what was looked for."""

    message_id: str
    snippet: str


class FinalRubric(BaseModel):
    """What is known of a search once it is over."""

    answer_correct: bool = False
    sources_correct: bool = False
    num_turns: int = 0
    attempted_answer: bool = False
    ever_found_right_email: bool = False
    ever_read_right_email: bool = False
    cant_parse_tool_call: bool = False
    bad_tool_call_name: bool = False
    bad_tool_call_args: bool = False
    ran_out_of_turns: bool = False
    returned_i_dont_know: bool = False
    num_sources: int = 0
    ever_tried_to_read_invalid_email: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
