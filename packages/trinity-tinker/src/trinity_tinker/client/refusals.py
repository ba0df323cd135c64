"""Settings that training with a Tinker service does not have; each is named before a run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config import Config
    from trinity.trainer.algorithm_parts import AlgorithmParts

__all__ = ["unsupported", "unsupported_parts"]

_ENTROPY = "algorithm.entropy_loss_fn_args.entropy_coef"
_NO_ENTROPY = (
    "an entropy needs the log-probabilities of all tokens, and a Tinker service tells those of "
    "given ones."
)
_WITHOUT_ENTROPY = (
    f"{_NO_ENTROPY[0].upper()}{_NO_ENTROPY[1:]} Train without this term: --set {_ENTROPY}=0.0."
)


def unsupported(config: Config) -> list[str]:
    """Return what of a resolved configuration a Tinker service does not support, a line each."""
    found = [
        _line(path, given, remedy)
        for path, given, supported, remedy in _settings(config)
        if given not in supported
    ]
    if config.model.lora_configs:
        found.append("model.lora_configs: the service makes the adapter. Set model.tinker.rank.")
    return found


def unsupported_parts(parts: AlgorithmParts) -> list[str]:
    """Return what of an algorithm needs more than log-probabilities, a line each."""
    found = []
    if parts.has_critic:
        found.append("algorithm.algorithm_type: a critic needs hidden states. Use grpo.")
    if parts.advantage_needs_entropies:
        found.append(f"algorithm.advantage_fn: {_NO_ENTROPY} Use one that needs none, as grpo's.")
    if parts.entropy_use:
        coef = getattr(parts.entropy_loss_fn, "entropy_coef", "not 0")
        found.append(_line(_ENTROPY, coef, _WITHOUT_ENTROPY))
    return found


def _line(path: str, given: Any, remedy: str) -> str:  # Any: of the setting's type
    return f"{path} is {given!r}. {remedy} (model.tinker.enable)"


def _settings(config: Config) -> Iterator[tuple[str, Any, tuple[Any, ...], str]]:
    """Yield path, value, supported values and remedy of settings (Any: of each one's type)."""
    model, syncs = config.model, config.synchronizer
    yield "trainer.num_ranks", config.trainer.num_ranks, (0, 1), "Leave it out."
    yield "model.repetition_penalty", model.repetition_penalty, (1.0,), "Leave it at 1.0."
    yield "model.min_response_tokens", model.min_response_tokens, (0,), "Leave it at 0."
    yield "synchronizer.sync_method", syncs.sync_method, ("memory", "checkpoint"), "Use memory."
    yield "synchronizer.in_flight", syncs.in_flight, ("finish",), "Use finish."
    given = (config.algorithm.entropy_loss_fn_args or {}).get("entropy_coef", 0.0)
    if config.algorithm.entropy_loss_fn != "none":
        yield _ENTROPY, given, (0.0,), _WITHOUT_ENTROPY
    for path, temperature in _temperatures(config):
        yield path, temperature, (None, 1.0), "The service scores at 1.0; leave it at 1.0."


def _temperatures(config: Config) -> Iterator[tuple[str, float | None]]:
    """Yield the temperatures that trained experiences are sampled with."""
    yield "model.temperature", config.model.temperature
    yield "explorer.rollout_model.temperature", config.explorer.rollout_model.temperature
    for index, one in enumerate(config.buffer.explorer_input.tasksets):
        path = f"buffer.explorer_input.tasksets.{index}.rollout_args.temperature"
        yield path, one.rollout_args.temperature
