"""A policy that breaks down, does not move, or is moved by too large steps."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from trinity_lab.advisors.following import Following, Series, Symptom
from trinity_lab.advisors.signal import has_risen

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.ports import Observation

_WINDOW = 4
_FALLEN, _SIGMAS = 0.5, 4.0
_ENTROPY_LEFT = 0.12  # of that of the beginning
_SOLVED = 0.75  # of the range of all rewards: a policy that knows the answers is sure of them
_KL = 12.0  # nats a token
_FEWEST, _SPIKE, _SPIKES = 8, 25.0, 3
_CLIPPED = 0.3
_STILL_AFTER, _STILL_KL = 20, 1e-5
_FLAT_AFTER, _FLAT_UNKNOWN = 24, 60  # steps; a quarter of the run, if that is more
_TOO_SMALL, _SMALL_AFTER = 1e-9, 5  # a float32 weight of 0.02 is rounded to steps of 2e-9
_HEAVY_KL = 1.0  # coefficient; 0.001 to 0.1 is usual


class Collapse(Following):
    """Finds a reward that falls from its height, entropy that is gone, and KL out of bounds."""

    def __init__(self, config: Config) -> None:
        lr = config.algorithm.optimizer.lr
        self._settings = {"algorithm.optimizer.lr": lr / 4}
        self._rewards, self._entropy, self._kl = Series(), Series(), Series()
        self._lowest, self._highest = math.inf, -math.inf
        self._top = (-math.inf, 0)  # highest mean of neighbours, and the step of the last of them

    def _look(self, seen: Observation) -> Symptom | None:
        metrics, step = seen.metrics, seen.step
        if seen.role == "explorer" and "rollout/reward/mean" in metrics:
            is_value = self._rewards.add(step, metrics["rollout/reward/mean"])
            if is_value and len(self._rewards) >= _WINDOW:
                self._top = max(self._top, (self._rewards.last(_WINDOW), step))
            self._lowest = min(self._lowest, metrics.get("rollout/reward/min", self._lowest))
            self._highest = max(self._highest, metrics.get("rollout/reward/max", self._highest))
            return self._fallen()
        if seen.role != "trainer":
            return None
        self._kl.add(step, metrics.get("actor/kl_loss"))
        if self._entropy.add(step, metrics.get("actor/entropy_loss")):
            return self._of_entropy() or self._of_kl()
        return self._of_kl()

    def _fallen(self) -> Symptom | None:
        rewards = self._rewards
        if len(rewards) < 2 * _WINDOW + 2:
            return None
        top, step = self._top
        now, lowest = rewards.last(_WINDOW), min(rewards.values)
        fallen = top - now
        if fallen < 1e-6:
            return None
        if fallen < _FALLEN * (top - min(lowest, 0.0)) or fallen < _SIGMAS * rewards.noise(_WINDOW):
            return None
        return self._symptom(
            f"the mean reward fell from {top:.3g} around step {step} to {now:.3g} "
            f"({rewards.since(_WINDOW)})"
        )

    def _of_entropy(self) -> Symptom | None:
        entropy = self._entropy
        if len(entropy) < 2 * _WINDOW or entropy.first(2) <= 0:
            return None
        left = entropy.last(_WINDOW) / entropy.first(2)
        if left > _ENTROPY_LEFT or self._is_solved():
            return None
        return self._symptom(
            f"entropy fell from {entropy.first(2):.3g} to {entropy.last(_WINDOW):.3g} nats a token "
            f"({entropy.since(_WINDOW)}): the policy explores no more"
        )

    def _is_solved(self) -> bool:
        if len(self._rewards) < _WINDOW or not has_risen(self._rewards):
            return False
        width = self._highest - self._lowest
        return self._rewards.last(_WINDOW) - self._lowest >= _SOLVED * width > 0

    def _of_kl(self) -> Symptom | None:
        if len(self._kl) < _WINDOW or self._kl.last(_WINDOW) < _KL:
            return None
        return self._symptom(
            f"the KL from the reference is {self._kl.last(_WINDOW):.3g} nats a token "
            f"({self._kl.since(_WINDOW)}; at the beginning {self._kl.first(2):.3g})"
        )

    def _symptom(self, text: str) -> Symptom:
        remedy = (
            "Go back to the best held-out checkpoint and lower the learning rate, or raise the KL "
            "or entropy coefficient. advisors: {collapse: rollback} does the first"
        )
        return Symptom(seen=text, remedy=remedy, settings=self._settings)


class Gradients(Following):
    """Finds gradient norms far above those of the steps before, and such that are no numbers."""

    def __init__(self) -> None:
        self._norms, self._spikes = Series(), list[tuple[int, float]]()

    def _look(self, seen: Observation) -> Symptom | None:
        norm = seen.metrics.get("actor/grad_norm")
        if seen.role != "trainer" or norm is None:
            return None
        if not math.isfinite(norm):
            return _of_gradients(f"the gradient norm of step {seen.step} is {norm}")
        usual = median(self._norms.values[-20:]) if len(self._norms) >= _FEWEST else math.inf
        self._norms.add(seen.step, norm)
        if usual > 0 and norm > _SPIKE * usual:
            self._spikes.append((seen.step, norm))
            few = len(self._spikes) < _SPIKES and norm < 10 * _SPIKE * usual
            if not few:
                steps = ", ".join(f"{value:.3g} at step {step}" for step, value in self._spikes)
                return _of_gradients(f"gradient norms jumped to {steps}; usual is {usual:.3g}")
        return None


def _of_gradients(text: str) -> Symptom:
    return Symptom(
        seen=text,
        remedy="Look for rows with very large rewards or advantages, lower trainer.grad_clip or "
        "the learning rate, and clip or normalise rewards",
        shows=lambda row: row["advantage"] is not None and abs(row["advantage"]) > 3,
    )


class Clipping(Following):
    """Finds steps whose tokens are mostly clipped: the samples are too old, or steps too large."""

    def __init__(self) -> None:
        self._clipped = Series()

    def _look(self, seen: Observation) -> Symptom | None:
        if seen.role != "trainer":
            return None
        self._clipped.add(seen.step, seen.metrics.get("actor/pg_clipfrac"))
        if len(self._clipped) < _WINDOW or self._clipped.last(_WINDOW) < _CLIPPED:
            return None
        return Symptom(
            seen=f"{self._clipped.last(_WINDOW):.0%} of the tokens were clipped "
            f"({self._clipped.since(_WINDOW)})",
            remedy="Train on fresher samples (synchronizer.sync_interval, sync_offset), lower the "
            "learning rate, or widen the clip range",
        )


class LearningRate(Following):
    """Finds steps that do not move the policy, and a reward that does not rise with them."""

    def __init__(self, config: Config) -> None:
        self._lr = config.algorithm.optimizer.lr
        total = config.trainer.total_steps or config.buffer.total_steps
        self._flat_after = max(_FLAT_AFTER, total // 4) if total else _FLAT_UNKNOWN
        self._rewards, self._kl, self._norms = Series(), Series(), Series()
        self._lrs = Series()
        self._kl_coefs: dict[str, float] = {}  # by the key of its arguments

    def _look(self, seen: Observation) -> Symptom | None:
        metrics, step = seen.metrics, seen.step
        if seen.role == "explorer":
            self._rewards.add(step, metrics.get("rollout/reward/mean"))
            return None
        if seen.role != "trainer":
            return None
        self._kl.add(step, metrics.get("actor/kl_loss"))
        self._norms.add(step, metrics.get("actor/grad_norm"))
        self._lrs.add(step, metrics.get("actor/lr"))
        self._kl_coefs = {
            "kl_loss_fn_args": metrics.get("actor/kl_coef", 0.0),
            "kl_penalty_fn_args": metrics.get("actor/kl_penalty/kl_coef", 0.0),
        }
        if self._is_too_small():
            return self._too_small()
        if len(self._norms) < _STILL_AFTER or self._norms.last(_WINDOW) < 1e-6:
            return None
        return self._still() or self._flat()

    def _still(self) -> Symptom | None:
        kl = self._kl
        if len(kl) < _STILL_AFTER or abs(kl.last(_WINDOW)) > _STILL_KL:
            return None
        return Symptom(
            seen=f"after {kl.steps[-1]} steps the KL from the beginning is "
            f"{kl.last(_WINDOW):.2g} nats a token: the policy has hardly moved "
            f"(learning rate {self._lr:g})",
            remedy="Raise algorithm.optimizer.lr, tenfold first; look at lr_warmup_steps, and at a "
            "KL coefficient that holds the policy back",
        )

    def _is_too_small(self) -> bool:
        rates = self._lrs.values
        if len(rates) < _SMALL_AFTER or max(rates) >= _TOO_SMALL:
            return False
        is_warmup = self._lr >= _TOO_SMALL and rates[-1] > rates[0]
        return not is_warmup

    def _too_small(self) -> Symptom:
        highest, steps = max(self._lrs.values), self._lrs.since(len(self._lrs))
        rate = f"at most {highest:.2g}" if highest else "0"
        return Symptom(
            seen=f"the learning rate was {rate} in {steps}: so small a step changes no weight",
            remedy=f"Raise algorithm.optimizer.lr (now {self._lr:g}; the default is 1e-6), or "
            "shorten its warmup (lr_warmup_steps)",
            shows=lambda _: False,  # no sample is to blame
        )

    def _flat(self) -> Symptom | None:
        rewards = self._rewards
        half = len(rewards) // 2
        if len(rewards) < self._flat_after:
            return None
        risen = rewards.last(half) - rewards.first(half)
        noise = rewards.noise(half) * math.sqrt(2)
        if risen > noise:
            return None
        return Symptom(
            seen=f"the mean reward has not risen: {rewards.first(half):.3g} in "
            f"{rewards.until(half)}, {rewards.last(half):.3g} in {rewards.since(half)} "
            f"(noise {noise:.2g}), with gradient norms of {self._norms.last(_WINDOW):.2g}",
            remedy=self._why_flat(),
        )

    def _why_flat(self) -> str:
        key = max(self._kl_coefs, key=self._kl_coefs.__getitem__)
        if self._kl_coefs[key] >= _HEAVY_KL:
            return (
                f"The KL coefficient is {self._kl_coefs[key]:g} (0.001 to 0.1 is usual) and holds "
                f"the policy back: lower algorithm.{key}.kl_coef"
            )
        return (
            "Check the sign and the order of rewards, the learning rate, and whether the reward "
            "depends on the reply; then give it more steps or larger groups"
        )
