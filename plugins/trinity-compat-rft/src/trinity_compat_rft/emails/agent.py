"""The agent that looks for an answer among mails."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from trinity_compat_rft.emails.mailbox import read_email_tool, search_emails_tool
from trinity_compat_rft.tool_agent import Tool, ToolAgent, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai import AsyncOpenAI

__all__ = ["EmailSearchAgent"]


class _Search(BaseModel):
    inbox_address: str = Field(description="The user's own address.")
    query_date: date = Field(description="Today, YYYY-MM-DD; no later mail is found.")
    keywords: list[str] = Field(description="Words that each stand in the subject or the text.")


class _Read(BaseModel):
    message_id: str = Field(description="As search_emails gave it.")


class EmailSearchAgent(ToolAgent):
    """Searches mails and reads them.

    Args:
        openai_client: of the model.
        model_name: as the client's API knows it.
        system_prompt: what the agent is to do.
        generate_kwargs: how the model is asked (Any: as the client takes it).
        response_structure: what it answers with.
        max_iters: most calls of the model.
        char_limit: characters of a tool's answer that the agent sees; None: all.

    Attributes:
        message_id_list: of the mails that it found.
        ever_read_message_ids: of those that it read.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- published
        self,
        openai_client: AsyncOpenAI,
        model_name: str,
        system_prompt: str,
        generate_kwargs: Mapping[str, Any],
        response_structure: type[BaseModel],
        max_iters: int = 10,
        char_limit: int | None = None,
    ) -> None:
        self.message_id_list: list[str] = []
        self.ever_read_message_ids: list[str] = []
        self.char_limit = char_limit
        search = "Find mails by words. Gives a list of message_id and the words around them."
        tools = {
            "search_emails": Tool(arguments=_Search, description=search, call=self.search_emails),
            "read_email": Tool(arguments=_Read, description="Read a mail.", call=self.read_email),
        }
        super().__init__(
            openai_client,
            model_name,
            system_prompt=system_prompt,
            tools=tools,
            response_structure=response_structure,
            options=generate_kwargs,
            max_iters=max_iters,
        )

    def search_emails(self, inbox_address: str, query_date: date, keywords: list[str]) -> str:
        """Return the mails found, as JSON.

        Raises:
            ToolError: there are no words to look for, or no day follows the date.
        """
        if not keywords:
            raise ToolError("there are no keywords")
        if query_date == date.max:
            raise ToolError(f"query_date {query_date} is too late")
        found = search_emails_tool(
            inbox=inbox_address,
            keywords=keywords,
            sent_before=(query_date + timedelta(days=1)).isoformat(),
        )
        self.message_id_list += [one.message_id for one in found]
        return self._cut(json.dumps([asdict(one) for one in found]))

    def read_email(self, message_id: str) -> str:
        """Return a mail, as JSON.

        Raises:
            ToolError: there is none of this name.
        """
        self.ever_read_message_ids.append(message_id)
        email = read_email_tool(message_id)
        if email is None:
            raise ToolError(f"there is no mail {message_id!r}")
        return self._cut(json.dumps(email.model_dump()))

    def _cut(self, text: str) -> str:
        return text if self.char_limit is None else text[: self.char_limit]
