"""Weights and optimizer states that are elsewhere between steps: here, in float64.

A weight's way there and back loses nothing, and whoever computes with one that was not brought back
computes something else. No GPU is needed for that, and none has run it.
"""

from __future__ import annotations

import logging

import pytest
import torch
from trinity.common.config.trainer import TrainerConfig
from trinity.errors import TrinityError
from trinity.trainer.offload import Offload
from trinity_testing.tiny import make_tiny_model

STEPS = (1, 2, 3)
VOCAB = 384  # of the rows
KL = {"kl_loss_fn": "k2", "kl_loss_fn_args": {"kl_coef": 0.3}}  # asks the reference
PPO = {"algorithm_type": "ppo", "advantage_fn": "ppo"}  # has a critic


def to(dtype):
    return lambda tensor: (tensor.to(dtype) if tensor.is_floating_point() else tensor).detach()


def taken_away(trainer, *, weights=True, states=True):
    """Return the trainer, whose weights and states are in float64 while nobody needs them."""
    trainer._offload = Offload(
        moves_weights=weights,
        moves_states=states,
        away=to(torch.float64),
        back=to(torch.float32),
    )
    if trainer._critic is not None:
        trainer._critic._offload = trainer._offload
    trainer._offload.offload(trainer._modules())
    return trainer


def dtypes_of(trainer):
    """Return the types of all weights and of all optimizer states."""
    policy, critic, reference = trainer.model, trainer._critic, trainer._scorer.reference
    critics = [] if critic is None else [critic]
    modules = [policy, *(c.module for c in critics)]
    modules += [] if reference is None else [reference.module]
    states = [
        value.dtype
        for optimizer in (trainer._optimizer, *(c._optimizer for c in critics))
        for state in optimizer.state.values()
        for value in state.values()
    ]
    weights = [parameter.dtype for module in modules for parameter in module.parameters()]
    return set(weights), set(states)


def numbers(metrics):
    return {name: v for name, v in metrics.items() if not name.startswith(("time/", "perf/"))}


def steps_of(trainer, rows, *, steps=STEPS):
    return [numbers(trainer.train_step(rows(), step=step)) for step in steps]


def assert_equal(trainer, other):
    ours, theirs = (one.snapshot(copy=True).tensors for one in (trainer, other))
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        assert torch.equal(ours[name].float(), weight.float()), name


@pytest.mark.parametrize("algorithm", [KL, PPO], ids=["reference", "critic"])
@pytest.mark.parametrize(("weights", "states"), [(True, True), (True, False), (False, True)])
def test_steps_have_the_bits_of_those_with_everything_in_place(
    a_trainer, ragged, algorithm, weights, states
) -> None:
    plain = a_trainer(**algorithm)
    moved = taken_away(a_trainer(**algorithm), weights=weights, states=states)

    assert steps_of(moved, ragged) == steps_of(plain, ragged)

    assert_equal(moved, plain)
    away, here = {torch.float64}, {torch.float32}
    assert dtypes_of(moved) == (away if weights else here, away if states else here)


def test_a_critic_keeps_no_output_layer_of_its_own(a_trainer, tmp_path) -> None:
    model = make_tiny_model(tmp_path / "untied", vocab=VOCAB, tie_embeddings=False)
    trainer = a_trainer(**PPO, model_path=model)

    policy, critic = (
        sum(weight.numel() for weight in module.parameters())
        for module in (trainer.model, trainer._critic._body.module)
    )

    layer = trainer.model.get_output_embeddings().weight
    assert policy - critic == layer.numel() == VOCAB * trainer.model.config.hidden_size


def test_states_are_away_while_the_model_computes(a_trainer, ragged) -> None:
    trainer, seen = taken_away(a_trainer()), []
    trainer.train_step(ragged(), step=1)

    trainer.model.base_model.register_forward_hook(lambda *_: seen.append(dtypes_of(trainer)))
    trainer.train_step(ragged(), step=2)

    assert seen
    assert set(map(repr, seen)) == {repr(({torch.float32}, {torch.float64}))}


def test_a_step_that_fails_leaves_weights_away_without_gradients(a_trainer, ragged) -> None:
    plain, moved = a_trainer(), taken_away(a_trainer())
    broken = ragged()
    broken[2].logprobs[0] = float("nan")
    for trainer in (plain, moved):
        with pytest.raises(TrinityError, match="train step 1 stopped"):
            trainer.train_step(broken, step=1)

    assert dtypes_of(moved)[0] == {torch.float64}
    assert all(p.grad is None for p in moved.model.parameters())
    assert steps_of(moved, ragged) == steps_of(plain, ragged)
    assert_equal(moved, plain)


def test_either_goes_on_from_the_checkpoint_of_the_other(a_trainer, ragged, tmp_path) -> None:
    plain, moved = a_trainer(**PPO), taken_away(a_trainer(**PPO))
    for name, trainer in (("plain", plain), ("moved", moved)):
        steps_of(trainer, ragged)
        trainer.save(tmp_path / name)
    expected = steps_of(plain, ragged, steps=[4])
    again, moved_again = a_trainer(**PPO), taken_away(a_trainer(**PPO))

    again.load(tmp_path / "moved")
    moved_again.load(tmp_path / "plain")

    assert dtypes_of(moved_again) == ({torch.float64}, {torch.float64})
    assert steps_of(again, ragged, steps=[4]) == expected
    assert steps_of(moved_again, ragged, steps=[4]) == expected
    assert_equal(again, plain)
    assert_equal(moved_again, plain)


def test_tied_weights_stay_one_and_what_others_hold_stays_theirs(a_trainer, ragged) -> None:
    trainer = taken_away(a_trainer())
    head, embedding = (
        getattr(trainer.model, f"get_{kind}_embeddings")() for kind in ("output", "input")
    )
    before = trainer.snapshot(copy=False).tensors
    kept = {name: tensor.clone() for name, tensor in before.items()}

    trainer.train_step(ragged(), step=1)

    assert head.weight is embedding.weight
    assert all(torch.equal(before[name], tensor) for name, tensor in kept.items())


BOTH = {"param_offload": True, "optimizer_offload": True}


@pytest.mark.parametrize(
    ("device", "is_sharded", "does"),
    [("cuda", False, True), ("cuda", True, False), ("cpu", False, False)],
)
def test_there_is_something_to_do_beside_a_gpu_where_a_rank_has_all(
    device, is_sharded, does
) -> None:
    found = Offload.of(TrainerConfig(**BOTH), device=torch.device(device), is_sharded=is_sharded)

    assert (found is not None) == does


def test_the_way_of_fsdp2_without_fsdp2_is_told(caplog) -> None:
    config, caplog.handler.level = TrainerConfig(offload_policy=True), logging.WARNING
    Offload.of(config, device=torch.device("cuda"), is_sharded=True)
    Offload.of(config, device=torch.device("cpu"), is_sharded=False)
    assert not caplog.messages

    Offload.of(config, device=torch.device("cuda"), is_sharded=False)

    assert "Set trainer.param_offload and trainer.optimizer_offload." in caplog.text
