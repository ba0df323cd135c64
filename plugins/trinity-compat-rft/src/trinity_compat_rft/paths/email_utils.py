"""``trinity.common.workflows.envs.email_searcher.utils``: mails, questions about them, a judge."""

from __future__ import annotations

from trinity_compat_rft.emails.mailbox import read_email_tool, search_emails_tool
from trinity_compat_rft.emails.records import (
    AnswerModel,
    Email,
    FinalRubric,
    QueryModel,
    SearchResult,
)
from trinity_compat_rft.emails.worth import judge_correctness

__all__ = [
    "AnswerModel",
    "Email",
    "FinalRubric",
    "QueryModel",
    "SearchResult",
    "judge_correctness",
    "read_email_tool",
    "search_emails_tool",
]
