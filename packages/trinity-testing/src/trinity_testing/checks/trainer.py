"""What every trainer must hold, on a tiny model with GRPO.

step 1 --> step 2 --save--> step 3          snapshot: version 1, 2, 3
                       +--load, in a new trainer--> step 3: the same weights
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from trinity.common.models.pretrained import no_progress_bars
from trinity.errors import TrinityError
from trinity.extend import KINDS

from trinity_testing.builders import an_experience
from trinity_testing.check import Check, CheckContext, Finding
from trinity_testing.checks.numbers import largest_difference, odd_metric
from trinity_testing.learning.lesson import ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from trinity.common.experience import Experience
    from trinity.extend.component import Component

__all__ = ["checks"]

TOTAL_STEPS = 4
TOLERANCE = 1e-6
ALGORITHM = "grpo"


def changes_the_weights(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer whose step changes no weight, or makes one that is not finite."""
    with _opened(component, context) as trainer:
        before = _weights(trainer)
        trainer.train_step(_batch(1), step=1)
        after = _weights(trainer)
    odd = [name for name, tensor in after.items() if not bool(tensor.isfinite().all())]
    if odd:
        return Finding(f"after a step, {odd[0]} holds a value that is not finite")
    if _difference(before, after) == 0.0:
        return Finding("a step with advantages that are not zero changed no weight")
    return None


def counts_versions(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer whose snapshots do not count the steps."""
    with _opened(component, context) as trainer:
        versions = [int(trainer.snapshot(copy=False).version)]
        for step in (1, 2):
            trainer.train_step(_batch(step), step=step)
            versions.append(int(trainer.snapshot(copy=False).version))
    if versions != [0, 1, 2]:
        return Finding(f"after 0, 1 and 2 steps the snapshots have versions {versions}")
    return None


def copies_when_told_to(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer whose copied snapshot changes by the next step."""
    with _opened(component, context) as trainer:
        kept = trainer.snapshot(copy=True).tensors
        before = {name: tensor.clone() for name, tensor in kept.items()}
        trainer.train_step(_batch(1), step=1)
    if _difference(before, dict(kept)) > 0.0:
        return Finding("snapshot(copy=True) gave tensors that the next step changed")
    return None


def goes_on_from_a_checkpoint(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer whose next step is another after its state went into a new one."""
    with TemporaryDirectory() as folder, no_progress_bars():
        with _opened(component, context) as first:
            for step in (1, 2):
                first.train_step(_batch(step), step=step)
            first.save(Path(folder))
            first.train_step(_batch(3), step=3)
            wanted, version = _weights(first), int(first.snapshot(copy=False).version)
        with _opened(component, context) as second, no_progress_bars():
            second.load(Path(folder))
            second.train_step(_batch(3), step=3)
            given, loaded = _weights(second), int(second.snapshot(copy=False).version)
    if loaded != version:
        return Finding(f"step 3 leads to version {version}, and after a resume to {loaded}")
    difference = _difference(wanted, given)
    if difference > TOLERANCE:
        return Finding(f"after a resume, the weights of step 3 differ by {difference:.2g}")
    return None


def saves_a_model(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer whose checkpoint holds no model in the Hugging Face format."""
    from transformers import AutoModelForCausalLM

    with TemporaryDirectory() as folder, _opened(component, context) as trainer:
        trainer.train_step(_batch(1), step=1)
        place = Path(folder) / "huggingface"
        with no_progress_bars():
            trainer.save(Path(folder))
            if not (place / "config.json").exists():
                return Finding("save() left no huggingface/config.json in its directory")
            saved = dict(AutoModelForCausalLM.from_pretrained(place).named_parameters())
        difference = _difference(_weights(trainer), saved)
    if difference > TOLERANCE:
        return Finding(f"the model that it saves differs by {difference:.2g} from its snapshot")
    return None


def leaves_the_batch(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer that changes the experiences it is given, which may be used again."""
    batch = _batch(1)
    before = [row.to_dict() for row in batch]
    with _opened(component, context) as trainer:
        trainer.train_step(batch, step=1)
    for one, other in zip(before, [row.to_dict() for row in batch], strict=False):
        changed = [name for name, value in one.items() if repr(other[name]) != repr(value)]
        if changed:
            return Finding(f"after a step, {changed[0]} of an experience is another")
    return Finding("after a step, the batch is shorter") if len(batch) != len(before) else None


def refuses_what_is_not_finite(component: Component, context: CheckContext) -> Finding | None:
    """Find a trainer that takes NaN for an advantage, or is another after it refused it."""
    with _opened(component, context) as trainer:
        before = _weights(trainer)
        batch = _batch(1)
        for row in batch:
            row.advantages = torch.full((row.response_length,), torch.nan)
        try:
            trainer.train_step(batch, step=1)
        except TrinityError:
            if _difference(before, _weights(trainer)) > 0.0:
                return Finding("it refused the step, and its weights are other ones all the same")
            return None
    return Finding("it made a step of advantages that are NaN, and said nothing")


def metrics_are_plain(component: Component, context: CheckContext) -> Finding | None:
    """Find metrics that are no plain finite floats."""
    with _opened(component, context) as trainer:
        problem = odd_metric(trainer.train_step(_batch(1), step=1))
    return Finding(problem) if problem else None


@contextmanager
def _opened(component: Component, context: CheckContext) -> Iterator[Any]:
    from trinity_testing.learning.toy_run import resolved_config

    state = torch.random.get_rng_state()
    config, _ = resolved_config(ALGORITHM, context.manager)
    config.algorithm.kl_loss_fn = "none"  # no reference model: the check is of the step
    config.algorithm.kl_loss_fn_args = {}
    with no_progress_bars():
        trainer = KINDS["trainer"].made(
            context.load(component),
            context.arguments(component),
            config=config,
            model_path=config.model.model_path,
            total_steps=TOTAL_STEPS,
            seed=1,
        )
    try:
        yield trainer
    finally:
        trainer.close()
        torch.random.set_rng_state(state)


def _batch(step: int) -> list[Experience]:
    """Return the batch of a step: eight answers, half of them good."""
    rows = []
    for run in range(8):
        response = [(11 * step + 5 * run + place) % 200 + 5 for place in range(3 + run % 3)]
        row = an_experience(
            prompt=(7, 8, 9),
            response=response,
            logprobs=[-5.0] * len(response),
            reward=float(run % 2),
            batch=step,
            run=run,
            info={"model_version": step - 1},
        )
        row.advantages = torch.full((len(response),), 1.0 if run % 2 else -1.0)
        row.returns = row.advantages.clone()
        rows.append(row)
    return rows


def _weights(trainer: Any) -> dict[str, Tensor]:
    tensors = trainer.snapshot(copy=True).tensors
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _difference(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    common = first.keys() & second.keys()
    if not common:
        return float("inf")
    return max(largest_difference(first[name], second[name].detach()) for name in common)


_KINDS = frozenset({"trainer"})
checks = (
    Check(
        id="trainer.step",
        function=changes_the_weights,
        remedy="Call backward() on the loss of the batch, then step the optimizer.",
        kinds=_KINDS,
        prepare=ready,
    ),
    Check(
        id="trainer.version",
        function=counts_versions,
        remedy="Begin with version 0 and add 1 in each train_step().",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.copy",
        function=copies_when_told_to,
        remedy="Clone the tensors where copy is True.",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.checkpoint",
        function=goes_on_from_a_checkpoint,
        remedy="Save weights, optimizer, version and random state, and load all of them.",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.model_folder",
        function=saves_a_model,
        remedy="Write the model with save_pretrained(directory / 'huggingface').",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.pure",
        function=leaves_the_batch,
        remedy="Work on ExperienceBatch.from_experiences(), or on copies.",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.finite",
        function=refuses_what_is_not_finite,
        remedy="Raise a TrinityError where loss or gradient is not finite, before the optimizer's "
        "step.",
        kinds=_KINDS,
    ),
    Check(
        id="trainer.metrics_plain",
        function=metrics_are_plain,
        remedy="Return plain floats as metrics.",
        kinds=_KINDS,
    ),
)
