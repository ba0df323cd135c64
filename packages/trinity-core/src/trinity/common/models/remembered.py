"""What a run has said and heard, as experiences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trinity.common.models.transcript import transcript
from trinity.common.models.turn import Turn
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.call import RunRequests
    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.clients import RunEndpoints
    from trinity.common.models.history import History
    from trinity.common.models.recorder import Recorder
    from trinity.common.models.settings import ModelSettings

__all__ = ["Remembered"]


class Remembered:
    """The part of a model wrapper that gives what was said, to be trained on."""

    _chat_format: ChatFormat
    _endpoints: RunEndpoints
    _history: History
    _recorder: Recorder
    _run: RunRequests
    _settings: ModelSettings

    @property
    def enable_history(self) -> bool:
        """Return whether every call is recorded."""
        return self._settings.enable_history

    def convert_messages_to_experience(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience.

        The replies that this run's engine made come with their token ids and log-probabilities;
        all other tokens are masked. Where the chat template rewrites earlier messages, it is the
        last unbroken chain of replies; :meth:`earlier_chains` has the others.

        Args:
            messages: the conversation.
            tools: as given to :meth:`chat`.
            temperature: stands in the experience where no reply was recorded.
        """
        turn = self._turn(messages, {"tools": tools})
        *earlier, whole = transcript(
            turn,
            history=self._history,
            chat_format=self._chat_format,
            temperature=self._settings.temperature if temperature is None else temperature,
            max_len=self._settings.max_model_len,
        )
        if earlier:
            self._run.broken.append((whole.tokens, earlier))
        if self._run.has_cut_prompts:
            whole.truncate_status = "prompt_truncated"
        return whole

    async def convert_messages_to_experience_async(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience; see the other method."""
        return self.convert_messages_to_experience(messages, tools, temperature)

    def earlier_chains(self, experience: Experience) -> list[Experience]:
        """Return the chains that :meth:`convert_messages_to_experience` left out of its result."""
        found = (chains for tokens, chains in self._run.broken if tokens is experience.tokens)
        return next(found, [])

    def extract_experience_from_history(
        self,
        clear_history: bool = True,  # noqa: FBT001, FBT002 -- published
        merge: Literal["exchanges", "chains"] = "exchanges",
    ) -> list[Experience]:
        """Return an experience for each reply so far, in the order of their requests.

        Args:
            clear_history: forget them.
            merge: ``chains``: one for each unbroken chain of replies instead, in which what the
                model did not say is masked.

        Raises:
            ConfigError: calls are not recorded.
        """
        if not (self.enable_history or self._settings.enable_openai_api):
            raise ConfigError(
                "the calls of this model are not recorded. "
                "Set explorer.rollout_model.enable_history: true."
            )
        are_chains = merge == "chains"
        found = self._recorder.chains() if are_chains else self._recorder.exchanges()
        if clear_history:
            self._recorder.clear()
        lost = self._endpoints.num_undelivered
        if lost and found:
            found[-1].metrics["api/undelivered:sum"] = float(lost)
        return found

    def _turn(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Turn:
        thinking = options.get("enable_thinking")
        return Turn(
            messages=tuple(dict(message) for message in messages),
            tools=tuple(options.get("tools") or ()),
            enable_thinking=self._settings.enable_thinking if thinking is None else thinking,
        )
