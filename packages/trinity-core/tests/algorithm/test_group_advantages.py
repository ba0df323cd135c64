"""Advantages that compare the runs of a task."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn, GRPOBatchAdvantageFn
from trinity.algorithm.advantage_fn.reinforce import ReinforceAdvantageFn
from trinity.algorithm.advantage_fn.step_wise_grpo import StepWiseGRPOAdvantageFn
from trinity.algorithm.ops import mean_and_std
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience
from trinity_algorithms.advantage_fn.gigpo import GiGPOAdvantageFn
from trinity_algorithms.advantage_fn.rec import RECAdvantageFn
from trinity_algorithms.advantage_fn.rloo import RLOOAdvantageFn


def a_row(reward, *, task=0, run=0, step=0, mask=(1, 1), **fields):
    return Experience(
        tokens=[7] * (1 + len(mask)),
        reward=reward,
        action_mask=list(mask),
        eid=EID(0, task, run, step),
        **fields,
    )


def a_batch(*groups):
    """Return a batch with one list of rewards a task, one row a run."""
    return ExperienceBatch.from_experiences(
        [a_row(r, task=t, run=n) for t, rewards in enumerate(groups) for n, r in enumerate(rewards)]
    )


def scores(function, batch):
    """Return the advantage of each row's first token, by its id."""
    batch, _ = function(batch)
    return {
        exp.eid.uid: batch["advantages"][i, 0].item() for i, exp in enumerate(batch.experiences)
    }


ALL = [
    GRPOAdvantageFn(),
    GRPOAdvantageFn(std_cal_level="batch"),
    GRPOAdvantageFn(normalize_by_std=False),
    GRPOBatchAdvantageFn(),
    StepWiseGRPOAdvantageFn(),
    GiGPOAdvantageFn(fnorm="std"),
    RLOOAdvantageFn(),
    RECAdvantageFn(std_normalize=True, drop="balance"),
]


@pytest.mark.parametrize("function", ALL, ids=lambda function: type(function).__name__)
@pytest.mark.parametrize("reward", [0.1, 0.7, 3.3, 5000.1])
def test_equal_rewards_teach_exactly_nothing(function, reward):
    assert set(scores(function, a_batch([reward] * 12, [reward + 1] * 7)).values()) == {0.0}


def test_dr_grpo_leaves_the_deviation_out():
    # mean 1; a group of one keeps its reward
    got = scores(GRPOAdvantageFn(normalize_by_std=False), a_batch([0.0, 2.0], [5.0]))

    assert list(got.values()) == [-1.0, 1.0, 5.0]


def test_rows_of_a_run_count_once_in_their_group():
    # run 0 has two rows: the means of the runs are 1 and 0, their mean 0.5
    rows = [a_row(1.0), a_row(1.0, step=1), a_row(0.0, run=1)]
    got = scores(GRPOAdvantageFn(normalize_by_std=False), ExperienceBatch.from_experiences(rows))

    assert list(got.values()) == [0.5, 0.5, -0.5]


def test_groups_that_stand_mixed_are_returned_group_by_group():
    rows = [
        a_row(1.0, task=1),
        a_row(3.0, task=2),
        a_row(0.0, task=1, run=1),
        a_row(4.0, task=2, run=1),
    ]
    batch = ExperienceBatch.from_experiences(rows)

    assert list(scores(RECAdvantageFn(), batch).values()) == [0.5, -0.5, -0.5, 0.5]
    # in the trainer the rows stay where they are
    assert list(scores(RLOOAdvantageFn(), batch).values()) == [1.0, -1.0, -1.0, 1.0]


def test_in_the_trainer_masked_rewards_do_not_count():
    batch = a_batch([0.0, 0.0])
    batch["action_mask"] = torch.tensor([[True, False], [True, True]])
    batch["token_level_rewards"] = torch.tensor([[1.0, 1e30], [2.0, 3.0]])

    got = scores(RLOOAdvantageFn(), batch)  # rewards 1 and 5: 1 - 5 and 5 - 1

    assert list(got.values()) == [-4.0, 4.0]


def test_tied_ranks_keep_the_order_of_appearance():
    # equal log-probabilities: ranks 0 and 1 of 2, R' = 1 and 1 - 0.5 / 2 = 0.75; mean 0.875
    rows = [a_row(1.0, logprobs=[-1, -1]), a_row(1.0, run=1, logprobs=[-1, -1])]
    function = GRPOAdvantageFn(rank_penalty=0.5, normalize_by_std=False)

    got = scores(function, ExperienceBatch.from_experiences(rows))

    assert list(got.values()) == [0.125, -0.125]


def test_a_reward_at_the_mean_is_good_where_rec_balances():
    # mean 0.5 of (2, 0.5, 0, -0.5): two are good, two bad, nothing is dropped
    batch, metrics = RECAdvantageFn(drop="balance")(a_batch([2.0, 0.5, 0.0, -0.5]))

    assert metrics["group_advantages/drop_balance/mean"] == 0.0
    assert batch["advantages"][:, 0].tolist() == [1.5, 0.0, -0.5, -1.0]


def test_the_same_draw_is_made_again_where_rec_balances():
    batch = a_batch([9.0, 0.0, 1.0, 2.0, 2.5])
    first, again = (scores(RECAdvantageFn(drop="balance"), batch) for _ in range(2))

    assert first == again
    assert list(first.values()).count(0.0) == 3  # four bad rows, one good


def test_a_plain_reward_needs_no_group():
    assert ReinforceAdvantageFn.needs_group is False
    assert list(scores(ReinforceAdvantageFn(), a_batch([2.0], [3.0])).values()) == [2.0, 3.0]


def test_all_steps_of_a_run_have_the_score_of_its_last_step():
    # last rewards 4 and 2, whatever the order of the rows: mean 3, deviation sqrt(2)
    rows = [a_row(4.0, step=1), a_row(9.0, step=0), a_row(2.0, run=1)]
    got = scores(StepWiseGRPOAdvantageFn(), ExperienceBatch.from_experiences(rows))

    assert list(got.values()) == pytest.approx([2**-0.5, 2**-0.5, -(2**-0.5)], rel=1e-5)
    halved = scores(
        StepWiseGRPOAdvantageFn(enable_step_norm=True), ExperienceBatch.from_experiences(rows)
    )
    assert halved["0/0/0/0"] == pytest.approx(got["0/0/0/0"] / 2)


def test_gigpo_compares_like_states_of_one_task_only():
    # task 0: returns 1 and 0, mean 0.5: A_E is 0.5 and -0.5; both steps began in s: A_S the same
    rows = [
        a_row(1.0, info={"env_state_hash": "s"}),
        a_row(0.0, run=1, info={"env_state_hash": "s"}),
        a_row(7.0, task=1, info={"env_state_hash": "s"}),
    ]
    got = scores(GiGPOAdvantageFn(epsilon=0.0), ExperienceBatch.from_experiences(rows))

    assert list(got.values()) == [1.0, -1.0, 7.0]


def test_gigpo_discounts_the_rewards_of_later_steps():
    # gamma 0.5: G = 0 + 0.5 * 1 and 1; alone in their states, A_E alone counts: the return is 1
    rows = [a_row(0.0, step=0), a_row(1.0, step=1)]
    function = GiGPOAdvantageFn(gamma=0.5, epsilon=0.0)

    assert list(scores(function, ExperienceBatch.from_experiences(rows)).values()) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (GRPOAdvantageFn, {"std_cal_level": "bach"}),
        (StepWiseGRPOAdvantageFn, {"std_cal_level": "bach"}),
        (GiGPOAdvantageFn, {"fnorm": "sdt"}),
        (RECAdvantageFn, {"drop": "balanced"}),
    ],
)
def test_a_misspelt_word_is_refused(function, args):
    with pytest.raises(ValueError, match="Did you mean"):
        function(**args)


@pytest.mark.parametrize("function", ALL, ids=lambda function: type(function).__name__)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_spoils_its_own_group_only(function, bad):
    if getattr(function, "std_cal_level", "group") == "batch":
        pytest.skip("a deviation of the batch holds all groups")
    batch, _ = function(a_batch([bad, 1.0], [0.0, 1.0]))

    assert batch["advantages"][2:].isfinite().all()
    assert not batch["advantages"][:2].isfinite().all()


def test_two_infinities_are_no_numbers_either():
    assert math.isnan(mean_and_std([math.inf, -math.inf])[0])


def test_in_the_trainer_a_row_that_is_masked_whole_counts_with_its_reward():
    rows = [a_row(1.0), a_row(0.0, run=1), a_row(1.0, run=2, mask=(0, 0))]

    got = scores(RLOOAdvantageFn(), ExperienceBatch.from_experiences(rows))

    assert list(got.values())[:2] == [0.5, -1.0]  # 1 - (0 + 1) / 2 and 0 - (1 + 1) / 2


def test_rec_counts_a_run_of_several_rows_once():
    rows = [a_row(1.0), a_row(1.0, step=1), a_row(0.0, run=1)]

    got = scores(RECAdvantageFn(), ExperienceBatch.from_experiences(rows))

    assert list(got.values()) == [0.5, 0.5, -0.5]
    alone = ExperienceBatch.from_experiences(rows[:2])
    assert list(scores(RECAdvantageFn(), alone).values()) == [1.0, 1.0]  # a group of one: R


def test_rec_drops_whole_runs():
    # means of the runs 1, 0, 0, 0: one is good, three bad; two of those are dropped, with all rows
    rows = [a_row(float(run == 0), run=run, step=step) for run in range(4) for step in range(2)]

    batch, metrics = RECAdvantageFn(drop="balance")(ExperienceBatch.from_experiences(rows))

    assert metrics["group_advantages/drop_balance/mean"] == 0.5
    by_run = batch["advantages"][:, 0].view(4, 2).tolist()
    assert by_run[0] == [0.5, 0.5]
    assert sorted(by_run[1:]) == [[-0.5, -0.5], [0.0, 0.0], [0.0, 0.0]]
