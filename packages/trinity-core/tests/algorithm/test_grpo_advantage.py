from __future__ import annotations

import pytest
import torch
from trinity.algorithm.advantage_fn import AdvantageFn, apply_advantage
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience


def a_batch(groups, *, response=2):
    """Return a batch with one list of rewards a task, one row a run."""
    rows = [
        Experience(
            tokens=[7] * (1 + response), prompt_length=1, reward=reward, eid=EID(0, task, run)
        )
        for task, rewards in enumerate(groups)
        for run, reward in enumerate(rewards)
    ]
    return ExperienceBatch.from_experiences(rows)


def test_a_reward_counts_by_its_distance_from_the_mean_in_deviations():
    # mean 0.5, sample std sqrt(2 * 0.25 / 1) = 0.7071: +-0.5 / 0.7071 = +-0.7071
    batch, _ = GRPOAdvantageFn(epsilon=0.0)(a_batch([[1.0, 0.0]]))

    assert batch["advantages"].tolist() == [
        pytest.approx([0.70710678] * 2),
        pytest.approx([-0.70710678] * 2),
    ]


def test_a_group_of_one_is_finite():
    batch, metrics = GRPOAdvantageFn(epsilon=1.0)(a_batch([[3.0]]))

    assert batch["advantages"].tolist() == [[1.5, 1.5]]  # 3 / (1 + 1)
    assert metrics["group_advantages/reward_std/mean"] == 1.0


def test_masked_tokens_get_nothing():
    batch = a_batch([[1.0, 0.0]], response=3)
    batch["action_mask"][:, 1] = False

    batch, _ = GRPOAdvantageFn()(batch)

    assert batch["advantages"][:, 1].tolist() == [0.0, 0.0]
    assert (batch["advantages"][:, [0, 2]] != 0).all()


def test_a_threshold_drops_groups_that_do_not_differ():
    batch, metrics = GRPOAdvantageFn(std_threshold=0.0)(a_batch([[1.0, 1.0], [0.0, 1.0], [1.0]]))

    assert batch.non_tensor_batch["uid"] == ["0/1", "0/1"]
    assert metrics["filtered_count"] == 3.0


def test_a_batch_without_differences_comes_back_empty():
    batch, _ = GRPOAdvantageFn(std_threshold=0.0)(a_batch([[1.0, 1.0]]))

    assert len(batch) == 0
    assert batch.write_back() == []


def test_the_copies_that_fill_dropped_groups_are_rows_of_their_own():
    advantage_fn = GRPOAdvantageFn(std_threshold=0.0, duplicate_experiences=True)
    batch, _ = advantage_fn(a_batch([[1.0, 1.0], [0.0, 1.0]]))

    assert batch.non_tensor_batch["uid"] == ["0/1"] * 4
    assert len({id(exp) for exp in batch.experiences}) == 4


def test_it_is_computed_by_the_pipeline_on_groups():
    assert GRPOAdvantageFn.computed_on == "group"
    assert not GRPOAdvantageFn.compute_in_trainer()


class ToVerlsNames(AdvantageFn):
    """Written to a tutorial: verl's field names, no super().__init__()."""

    def __init__(self, shift: float = 0.5) -> None:
        self.shift = shift

    def __call__(self, exps, **kwargs):
        scores = exps.batch["token_level_rewards"].sum(-1, keepdim=True) - self.shift
        exps.batch["advantages"] = scores * exps.batch["response_mask"]
        exps.batch["returns"] = exps.batch["advantages"]
        return exps, {"groups": float(len(set(exps.non_tensor_batch["uid"])))}


def test_a_function_written_to_verls_names_runs_on_our_batch():
    batch, metrics = apply_advantage(ToVerlsNames(), a_batch([[1.0, 0.0], [2.0]]))

    assert batch["advantages"][:, 0].tolist() == [0.5, -0.5, 1.5]
    assert metrics == {"advantage/groups": 2.0}
    assert ToVerlsNames.compute_in_trainer()
    assert ToVerlsNames.default_args() == {"shift": 0.5}


class OnLists(AdvantageFn):
    """Written to Trinity-RFT 0.6: gets and returns a list of experiences."""

    def __call__(self, exps, **kwargs):
        for exp in exps:
            exp.advantages = torch.full((exp.response_length,), exp.reward)
        return exps[1:], {}

    @classmethod
    def compute_in_trainer(cls):
        return False


def test_a_function_on_lists_is_given_the_list():
    batch, metrics = apply_advantage(OnLists(), a_batch([[1.0, 4.0]]))

    assert batch["advantages"].tolist() == [[4.0, 4.0]]
    assert metrics == {"advantage/dropped_rows": 1.0}
