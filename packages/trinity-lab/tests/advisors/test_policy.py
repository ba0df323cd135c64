"""A policy that breaks down, does not move, or is moved too far."""

from __future__ import annotations

import math

import pytest
from trinity_lab.advisors.policy import Clipping, Collapse, Gradients, LearningRate

from .conftest import a_row, both, explored, found, trained


def rewards(values):
    for step, value in enumerate(values, start=1):
        yield from both(step, **{"reward/mean": value})


def each(name, values, rows=()):
    return [trained(step, rows, **{name: value}) for step, value in enumerate(values, start=1)]


def test_a_reward_that_falls_to_less_than_half_of_its_height_is_found(advisor) -> None:
    # one jump of 0.5 in 11: sd 0.5 / sqrt(11) = 0.151, noise 0.151 / sqrt(8) = 0.053, and
    # 0.5 > 4 x 0.053; in step 11 the last four are 0.425, a fall of 0.375 of 0.8
    one = advisor(Collapse, algorithm={"optimizer": {"lr": 0.004}})

    step, advice = found(one, rewards([0.8] * 8 + [0.3] * 8))

    assert step == 12
    assert advice.seen == "the mean reward fell from 0.8 around step 8 to 0.3 (steps 9 to 12)"
    assert advice.settings == {"algorithm.optimizer.lr": 0.001}
    assert "advisors: {collapse: rollback}" in advice.remedy


def test_one_that_falls_by_less_than_half_is_not(advisor) -> None:
    assert found(advisor(Collapse), rewards([0.8] * 8 + [0.41] * 8)) is None


def test_one_that_always_jumped_so_far_is_not(advisor) -> None:
    # jumps of 0.8 up and down: sd 0.83, noise 0.83 / sqrt(8) = 0.29; a fall of 0.4 is below four
    assert found(advisor(Collapse), rewards([0.8, 0.0] * 8 + [0.0] * 4)) is None


def test_entropy_of_less_than_12_percent_is_found(advisor) -> None:
    step, advice = found(advisor(Collapse), each("entropy_loss", [1.0, 1.0, 0.5, 0.5] + [0.1] * 4))

    assert step == 8
    assert advice.seen == (
        "entropy fell from 1 to 0.1 nats a token (steps 5 to 8): the policy explores no more"
    )


def test_entropy_of_13_percent_is_not(advisor) -> None:
    values = [1.0, 1.0, 0.5, 0.5] + [0.13] * 30

    assert found(advisor(Collapse), each("entropy_loss", values)) is None


@pytest.mark.parametrize(("at_the_end", "is_alarmed"), [(0.8, False), (0.7, True)])
def test_entropy_may_go_once_three_quarters_of_the_reward_are_learned(
    advisor, at_the_end, is_alarmed
) -> None:
    steps = []
    for step in range(1, 30):
        reward, entropy = (0.1, 1.0) if step <= 8 else (at_the_end, 0.1)
        all_rewards = {"reward/mean": reward, "reward/min": 0.0, "reward/max": 1.0}
        steps += [explored(step, **all_rewards), trained(step, entropy_loss=entropy)]

    assert (found(advisor(Collapse), steps) is not None) is is_alarmed


def test_kl_of_12_nats_a_token_is_found(advisor) -> None:
    step, advice = found(advisor(Collapse), each("kl_loss", [2.0, 12.0, 17.0, 17.0]))

    assert step == 4  # (2 + 12 + 17 + 17) / 4 = 12; at the beginning (2 + 12) / 2
    assert advice.seen == (
        "the KL from the reference is 12 nats a token (steps 1 to 4; at the beginning 7)"
    )


def test_kl_below_it_is_not(advisor) -> None:
    assert found(advisor(Collapse), each("kl_loss", [11.9] * 30)) is None


LARGE = [a_row("1/0/0/0", advantage=-3.5), a_row("1/0/1/0", advantage=2.9)]


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_norm_that_is_no_number_is_found_at_once(advisor, norm) -> None:
    step, advice = found(advisor(Gradients), each("grad_norm", [1.0, norm], LARGE))

    assert (step, advice.seen) == (2, f"the gradient norm of step 2 is {norm}")
    assert advice.samples == ["1/0/0/0"]


def test_the_third_jump_above_25_times_the_median_is_found(advisor) -> None:
    step, advice = found(advisor(Gradients), each("grad_norm", [1.0] * 8 + [26.0, 1.0, 30, 26]))

    assert step == 12
    assert advice.seen == (
        "gradient norms jumped to 26 at step 9, 30 at step 11, 26 at step 12; usual is 1"
    )
    assert advice.remedy.startswith("Look for rows with very large rewards")


def test_a_single_jump_above_250_times_is_found_at_once(advisor) -> None:
    assert found(advisor(Gradients), each("grad_norm", [1.0] * 8 + [251.0]))[0] == 9


@pytest.mark.parametrize(
    "norms",
    [
        pytest.param([1.0] * 8 + [26.0, 1.0, 26.0, *[1.0] * 20], id="two jumps"),
        pytest.param([1.0] * 8 + [25.0, 1.0, 25.0, 1.0, 25.0, 1.0], id="25 times"),
        pytest.param([1.0] * 7 + [249.0], id="before eight are known"),
    ],
)
def test_gradients_are_left_alone_with(advisor, norms) -> None:
    assert found(advisor(Gradients), each("grad_norm", norms)) is None


def test_thirty_percent_clipped_in_four_steps_are_found(advisor) -> None:
    step, advice = found(advisor(Clipping), each("pg_clipfrac", [0.0, 0.25, 0.25, 0.25, 0.45]))

    assert step == 5  # 0.25 + 0.25 + 0.25 + 0.45 = 4 x 0.3
    assert advice.seen == "30% of the tokens were clipped (steps 2 to 5)"
    assert "synchronizer.sync_interval" in advice.remedy


def test_29_percent_are_not(advisor) -> None:
    assert found(advisor(Clipping), each("pg_clipfrac", [0.29] * 30)) is None


def moved(kl: float):
    return [trained(step, kl_loss=kl, grad_norm=0.5) for step in range(1, 31)]


def test_a_policy_that_has_not_moved_in_twenty_steps_is_found(advisor) -> None:
    one = advisor(LearningRate, algorithm={"optimizer": {"lr": 3e-9}})

    step, advice = found(one, moved(9e-6))

    assert step == 20
    assert advice.seen == (
        "after 20 steps the KL from the beginning is 9e-06 nats a token: the policy has hardly "
        "moved (learning rate 3e-09)"
    )
    assert advice.remedy.startswith("Raise algorithm.optimizer.lr, tenfold first")


def test_one_that_has_moved_a_little_is_not(advisor) -> None:
    assert found(advisor(LearningRate), moved(1.1e-5)) is None


def flat(rise: float, *, num_steps: int = 24):
    """Return rewards that alternate between 0.4 and 0.6, and in the second half so much higher."""
    for step in range(1, num_steps + 1):
        reward = (0.4 if step % 2 else 0.6) + (rise if step > num_steps // 2 else 0.0)
        yield explored(step, **{"reward/mean": reward})
        yield trained(step, grad_norm=0.5)


def test_a_reward_that_does_not_rise_in_24_steps_is_found(advisor) -> None:
    # 23 jumps of 0.2, up and down: sd sqrt(23 x 0.04 / 22) = 0.204, of twelve 0.204 / sqrt(24) =
    # 0.042, of the difference of two halves 0.042 x sqrt(2) = 0.059; the rise is 0.05
    step, advice = found(advisor(LearningRate, buffer={"total_steps": 26}), flat(0.05))

    assert step == 24
    assert advice.seen == (
        "the mean reward has not risen: 0.5 in steps 1 to 12, 0.55 in steps 13 to 24 (noise "
        "0.058), with gradient norms of 0.5"
    )
    assert advice.remedy.startswith("Check the sign and the order of rewards")


def test_a_reward_that_falls_late_in_a_long_run_is_told_with_the_steps_that_are_kept(
    advisor,
) -> None:
    def steps():
        for step in range(1, 4001):
            yield explored(step, **{"reward/mean": step / 3000 if step < 3000 else 0.0})
            yield trained(step, grad_norm=0.5)

    step, advice = found(advisor(LearningRate, buffer={"total_steps": 8000}), steps())

    assert step > 3000
    assert f" in steps 1 to 200 and {step - 1799} to {step - 1000}, " in advice.seen
    assert f" in steps {step - 999} to {step} (noise " in advice.seen


def test_a_policy_that_moves_no_more_in_a_long_run_is_told_with_its_steps(advisor) -> None:
    kls = [0.01 if step < 3000 else 0.0 for step in range(1, 4001)]
    steps = [trained(step, kl_loss=kl, grad_norm=0.5) for step, kl in enumerate(kls, start=1)]

    step, advice = found(advisor(LearningRate), steps)

    assert step == 3003
    assert advice.seen.startswith("after 3003 steps the KL from the beginning is 0 nats")


def test_one_that_rises_above_its_noise_is_not(advisor) -> None:
    assert found(advisor(LearningRate, buffer={"total_steps": 26}), flat(0.07)) is None


def test_a_long_run_is_given_a_quarter_of_its_steps(advisor) -> None:
    one = advisor(LearningRate, buffer={"total_steps": 160})

    assert found(one, flat(0.0, num_steps=39)) is None
    assert found(advisor(LearningRate, buffer={"total_steps": 160}), flat(0.0, num_steps=40))


def test_without_gradients_there_is_no_learning_rate_to_blame(advisor) -> None:
    steps = [trained(step, kl_loss=0.0, grad_norm=0.0) for step in range(1, 31)]

    assert found(advisor(LearningRate), steps) is None


@pytest.mark.parametrize(("highest", "told"), [(0.0, "0"), (1e-30, "at most 1e-30")])
def test_a_learning_rate_that_moves_no_weight_is_found_after_five_steps(
    advisor, highest, told
) -> None:
    one = advisor(LearningRate, algorithm={"optimizer": {"lr": 0.0}})

    step, advice = found(one, each("lr", [0.0, 0.0, highest, 0.0, 0.0], rows=[a_row()]))

    assert step == 5
    assert advice.seen == (
        f"the learning rate was {told} in steps 1 to 5: so small a step changes no weight"
    )
    assert advice.samples == []
    assert advice.remedy == (
        "Raise algorithm.optimizer.lr (now 0; the default is 1e-6), or shorten its warmup "
        "(lr_warmup_steps)"
    )


@pytest.mark.parametrize(
    "rates",
    [[1e-10 * step for step in range(1, 9)], [1e-6, 1e-9, 0.0, 0.0, 0.0, 0.0, 0.0]],
    ids=["a long warmup", "the end of a schedule"],
)
def test_one_that_still_rises_or_falls_at_the_end_is_not(advisor, rates) -> None:
    assert found(advisor(LearningRate), each("lr", rates)) is None


def test_a_warmup_to_a_rate_that_moves_nothing_is_found(advisor) -> None:
    one = advisor(LearningRate, algorithm={"optimizer": {"lr": 5e-10}})

    assert found(one, each("lr", [1e-10, 2e-10, 3e-10, 4e-10, 5e-10]))


@pytest.mark.parametrize(
    ("name", "coef", "told"),
    [
        ("kl_coef", 1.0, "coefficient is 1 (0.001 to 0.1 is usual)"),
        ("kl_coef", 1.0, "lower algorithm.kl_loss_fn_args.kl_coef"),
        ("actor/kl_penalty/kl_coef", 5.0, "lower algorithm.kl_penalty_fn_args.kl_coef"),
        ("kl_coef", 0.9, "Check the sign"),
    ],
)
def test_a_heavy_kl_coefficient_is_named_where_the_reward_does_not_rise(
    advisor, name, coef, told
) -> None:
    one = advisor(LearningRate, buffer={"total_steps": 26})
    steps = (
        trained(seen.step, grad_norm=0.5, **{name: coef}) if seen.role == "trainer" else seen
        for seen in flat(0.0)
    )

    step, advice = found(one, steps)

    assert step == 24
    assert told in advice.remedy
