"""The model and the task of a run whose replies are recorded and then scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.models.chat_experiences import chains_of
from trinity.common.models.recorded_calls import REPLY_NAMES
from trinity.common.workflows.task import Task
from trinity.common.workflows.workflow import reward_of
from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.models.recorded_calls import RecordedCall
    from trinity.common.ports import Endpoint

__all__ = ["RecordedModel", "RecordedTask"]


@dataclass(kw_only=True)
class RecordedTask(Task):
    """A task with the key of its run.

    Attributes:
        key: gives ``api_key`` when it is first wanted.
    """

    key: Callable[[], str] = field(repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the key itself in place of the run's model."""
        return vars(self) | {"key": partial(str, self.api_key)}

    @property
    def api_key(self) -> str:
        """Return the key by which calls are known as this run's."""
        return self.key()


class RecordedModel:
    """The run's model, with the methods that score what it recorded.

    Everything else is the ``ModelWrapper``'s.
    """

    def __init__(self, model: ModelWrapper) -> None:
        self._model = model
        self._endpoint: Endpoint | None = None
        self._given: list[Experience] | None = None

    def __getattr__(self, name: str) -> Any:  # Any: an attribute of the model
        return getattr(self._model, name)

    @property
    def endpoint_of_run(self) -> Endpoint:
        """Return where an agent finds the model, which samples as the agent asks."""
        if self._endpoint is None:
            self._endpoint = self._model.endpoint(force_sampling=False)
        return self._endpoint

    @property
    def base_url(self) -> str:
        """Return the address of its OpenAI API."""
        return self.endpoint_of_run.base_url

    @property
    def api_key(self) -> str:
        """Return the key by which calls are known as this run's; without an API, its name."""
        has_api = self._model.settings.enable_openai_api
        return self.endpoint_of_run.key if has_api else self._model.run_id

    def set_api_key(self, api_key: str) -> None:
        """Do nothing: each run has a key of its own."""

    async def overwrite_history_experiences_async(
        self, experiences: list[Experience], key: str | None = None
    ) -> None:
        """Let these be the run's experiences in place of what was recorded."""
        self._given = list(experiences)

    async def update_experience_reward_async(
        self,
        *,
        reward: float,
        info: dict[str, Any] | None = None,
        sample_ids: list[str] | None = None,
        key: str | None = None,
    ) -> None:
        """Give the replies that are recorded so far a reward; a later one wins.

        Args:
            reward: finite; None changes nothing.
            info: added to each. A conversation that becomes one experience has its last reply's.
            sample_ids: ``id`` of the responses; None: all replies so far.
            key: ignored; a run scores its own replies.

        Raises:
            ConfigError: calls are not recorded.
            WorkflowError: the reward is no number, or an id is unknown.
        """
        score = reward_of(reward, what="update_reward()'s reward")
        recorded = self._recorded() if self._given is None else self._given
        for one in _chosen(recorded, sample_ids):
            one.reward = one.reward if score is None else score
            one.info |= info or {}

    def _recorded(self) -> list[Experience]:
        """Return the replies so far, without a count of those that no client has heard yet."""
        recorded = [call.experience for call in self._model.recorded_calls]
        return recorded or self._model.extract_experience_from_history(clear_history=False)

    def scored(self) -> list[Experience]:
        """Return the run's experiences that have a reward.

        Replies of one unbroken conversation with the same reward are one experience.

        Raises:
            ModelError: the engine failed, whatever the agent made of it.
            WorkflowError: nothing was recorded or scored.
        """
        self._model.check_served()
        calls = self._model.recorded_calls
        experiences = self._given
        if experiences is None:
            experiences = self._model.extract_experience_from_history()
        if not experiences:
            raise WorkflowError(
                "no call of the model was recorded. Let the agent ask at the workflow's base_url "
                "with its api_key, or set explorer.rollout_model.enable_history: true for chats."
            )
        kept = [one for one in experiences if one.reward is not None]
        if not kept:
            raise WorkflowError(
                f"none of {len(experiences)} recorded replies has a reward. Call update_reward() "
                f"after the agent's replies and before run_async() returns."
            )
        num_unscored = float(len(experiences) - len(kept))
        if self._given is None:
            kept = _conversations(calls)
        kept[-1].metrics["api/unscored"] = num_unscored
        return kept


def _conversations(calls: Iterable[RecordedCall]) -> list[Experience]:
    """Return an experience for each unbroken chain of replies with one reward, in their order."""
    by_reward: dict[float, list[RecordedCall]] = {}
    for call in calls:
        if call.experience.reward is not None:
            by_reward.setdefault(call.experience.reward, []).append(call)
    chains = [chain for alike in by_reward.values() for chain in chains_of(alike)]
    return sorted(chains, key=_last_request)


def _last_request(experience: Experience) -> int:
    _, name = experience.info[REPLY_NAMES][-1]
    return int(name.partition("-")[0])


def _chosen(experiences: list[Experience], sample_ids: list[str] | None) -> list[Experience]:
    if sample_ids is None:
        return experiences
    by_number: dict[str, list[Experience]] = {}
    for one in experiences:
        by_number.setdefault(str(one.info.get("request", "")).partition("-")[0], []).append(one)
    chosen: list[Experience] = []
    for sample_id in sample_ids:
        found = by_number.get(sample_id.rpartition("-")[2])
        if found is None:
            raise WorkflowError(
                f"update_reward() was given the sample id {sample_id!r}, which is no reply of this "
                f"run so far. Give the id of a response, such as chatcmpl-0/3/1-0."
            )
        chosen += found
    return chosen
