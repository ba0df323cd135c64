"""A harness that asks once, in this process: no program is started for a run.

The chat programs of verifiers are processes of their own, a second or two of CPU a run. A task
without tools needs none of that. It runs where verifiers is, and imports nothing of Trinity.
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from verifiers.v1 import Harness, HarnessConfig, ProgramResult
from verifiers.v1.dialects.chat import message_to_wire

__all__ = ["DirectHarness"]


class DirectHarness(Harness[HarnessConfig]):
    """Sends the prompt, and is done with the reply."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # noqa: PLR0913, PLR0917 -- what verifiers gives
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> ProgramResult:
        """Ask by the endpoint that verifiers listens at; it records what is said."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return ProgramResult(exit_code=0, stdout="", stderr="")
