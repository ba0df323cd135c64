"""A run of a few steps with the real parts and without the runtime around them.

engine --completions--> pipeline --> queue --> strategy --> trainer --weights--> engine
                                     file of rows -^
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.buffer.pipeline import ExperiencePipeline
from trinity.common.config import (
    Config,
    ExperienceBufferConfig,
    FormatConfig,
    Machine,
    Problem,
    check,
    resolve,
)
from trinity.common.experience import EID, Experience
from trinity.common.ports import GenerationRequest, RunKey
from trinity.common.sync_policy import policy_of
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.plugin_adapter import adapted
from trinity.runtime.ready import ReadyRows

from trinity_testing.learning import lesson

if TYPE_CHECKING:
    from trinity.common.ports import Completion
    from trinity.extend import PluginManager

__all__ = ["ToyRun", "resolved_config", "schema_name"]

MACHINE = Machine()  # one core, no GPU, wherever this runs


def resolved_config(algorithm: str, manager: PluginManager) -> tuple[Config, list[Problem]]:
    """Return the configuration of a toy run, and what is wrong with it."""
    cls: Any = manager.load("algorithm", algorithm)
    settings = lesson.settings(
        algorithm,
        schema=schema_name(cls.setting("schema")),
        has_experts=_wants_experts(cls, manager),
    )
    config = resolve(Config.model_validate(settings), MACHINE, manager=manager)
    problems = check(config, MACHINE, manager=manager)
    return config, [problem for problem in problems if problem.severity != "notice"]


def schema_name(schema: type | str) -> str:
    """Return the word for a schema, which is given as a class or as the word itself.

    >>> from trinity.algorithm import ExperienceModel
    >>> schema_name(ExperienceModel), schema_name("experience")
    ('experience', 'experience')
    """
    return schema if isinstance(schema, str) else getattr(schema, "name", schema.__name__)


def _wants_experts(cls: Any, manager: PluginManager) -> bool:
    name = cls.default_config().get("sample_strategy", "default")
    return "auxiliary_buffer" in manager.find("sample_strategy", name).spec.needs


class ToyRun:
    """An algorithm with its own parts, and the tiny model that it trains.

    Args:
        config: what :func:`resolved_config` returned.
        manager: where the parts are; it must be the process's.
        total_steps: of the run.
    """

    def __init__(self, config: Config, *, manager: PluginManager, total_steps: int) -> None:
        self._config, self._manager = config, manager
        path = config.model.model_path
        self._trainer: Any = manager.load("trainer", config.trainer.trainer_type)(
            config, model_path=path, total_steps=total_steps, seed=config.seed
        )
        rollout = config.explorer.rollout_model
        self._engine: Any = manager.load("rollout_engine", rollout.engine_type or "")(
            model_path=path,
            max_model_len=lesson.MAX_MODEL_LEN,
            seed=config.seed,
            module=self._trainer.module,
        )
        self._algorithm: Any = manager.load("algorithm", config.algorithm.algorithm_type)
        self._is_from_file = config.mode == "train"
        self._storage = self._make_storage()
        self._rollouts = RolloutBuffer(policy_of(config), batch=1)
        self._source: Any = self._storage
        if not self._is_from_file:
            self._source = ReadyRows(self._storage, self._rollouts)
        self._pipeline = ExperiencePipeline([], self._group_advantage_fn(), self._storage)
        self._strategy = self._make_strategy()

    def step(self, number: int) -> float:
        """Make one step; return the mean reward of what the model said before it."""
        experiences = self._explored(number)
        mean = sum(exp.reward or 0.0 for exp in experiences) / len(experiences)
        if not self._is_from_file:
            self._hand_over(experiences)
        try:
            batch, _ = self._strategy.sample(number)
        except StopIteration:  # an advantage function left nothing of this step
            return mean
        self._trainer.train_step(batch, step=number)
        self._engine.load_weights(self._trainer.snapshot(copy=False))
        if not self._is_from_file and self._storage.available():
            self._storage.read(self._storage.available(), timeout_s=0.0)  # of an older policy
            self._source.reconcile()
        self._rollouts.weights_synced(version=number)
        return mean

    def close(self) -> None:
        """Close engine, storage and trainer."""
        for part in (self._engine, self._storage, self._trainer):
            part.close()

    def _explored(self, step: int) -> list[Experience]:
        futures = [
            self._engine.submit(
                GenerationRequest(
                    prompt_token_ids=prompt,
                    key=RunKey(batch=str(step), task=task),
                    n=lesson.GROUP_SIZE,
                    max_new_tokens=lesson.ANSWER_TOKENS,
                )
            )
            for task, prompt in enumerate(lesson.prompts())
        ]
        return [
            _experience(completion, EID(batch=step, task=task, run=run))
            for task, future in enumerate(futures)
            for run, completion in enumerate(future.result())
        ]

    def _hand_over(self, experiences: list[Experience]) -> None:
        if not self._algorithm.setting("use_advantage"):
            experiences = _better_halves(experiences)
        self._pipeline.process(experiences)
        self._rollouts.finish(self._rollouts.begin().number, self._storage.available())

    def _make_storage(self) -> Any:
        buffer = self._config.buffer.trainer_input.experience_buffer
        assert buffer is not None, "resolve fills it in"
        return self._storage_of(buffer)

    def _storage_of(self, buffer: ExperienceBufferConfig) -> Any:
        component = self._manager.find("storage", buffer.storage_type)
        storage: Any = component.load()
        made = storage(
            buffer, path=buffer.path, chat_format=lesson.chat_format(), total_epochs=None
        )
        return adapted(made, component)

    def _make_strategy(self) -> Any:
        algorithm = self._config.algorithm
        cls = self._manager.load("sample_strategy", algorithm.sample_strategy or "default")
        strategy: Any = cls(**(algorithm.sample_strategy_args or {}))
        rows = lesson.rows_file("sft")
        experts = ExperienceBufferConfig(
            storage_type="file", path=str(rows), format=FormatConfig(prompt_type="plaintext")
        )
        strategy.bind(
            {
                "experience_buffer": self._source,
                lesson.EXPERTS: self._storage_of(experts),
            },
            train_batch_size=self._config.buffer.train_batch_size,
            read_timeout_s=1.0,
        )
        return strategy

    def _group_advantage_fn(self) -> Any:
        algorithm = self._config.algorithm
        if not (algorithm.advantage_fn and self._algorithm.setting("use_advantage")):
            return None
        cls: Any = self._manager.load("advantage_fn", algorithm.advantage_fn)
        if cls.compute_in_trainer():
            return None
        return cls(**(algorithm.advantage_fn_args or {}))


def _experience(completion: Completion, eid: EID) -> Experience:
    prompt = lesson.prompts()[int(eid.task)]
    return Experience(
        tokens=[*prompt, *completion.token_ids],  # type: ignore[arg-type] # lists become tensors
        prompt_length=len(prompt),
        logprobs=completion.logprobs,  # type: ignore[arg-type]
        action_mask=[True] * len(completion.token_ids),  # type: ignore[arg-type]
        reward=lesson.reward(completion.token_ids),
        eid=replace(eid),
        info={"model_version": completion.weight_version},
    )


def _better_halves(experiences: list[Experience]) -> list[Experience]:
    """Return the better half of each group: what an algorithm without advantages imitates."""
    kept = []
    for start in range(0, len(experiences), lesson.GROUP_SIZE):
        group = experiences[start : start + lesson.GROUP_SIZE]
        kept += sorted(group, key=lambda exp: -(exp.reward or 0.0))[: lesson.GROUP_SIZE // 2]
    return kept
