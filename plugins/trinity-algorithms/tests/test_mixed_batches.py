"""Batches that mix the policy's own rows with an expert's."""

from __future__ import annotations

import pytest
import torch
from trinity.algorithm.ops import weight_of_part
from trinity.buffer.queue import QueueStorage
from trinity.common.batch import ExperienceBatch
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import Experience
from trinity.errors import DataError
from trinity_algorithms.entropy_loss_fn import MixEntropyLossFn
from trinity_algorithms.policy_loss_fn.mix import MIXPolicyLossFn
from trinity_algorithms.policy_loss_fn.mix_chord import MIXCHORDPolicyLossFn, expert_share
from trinity_algorithms.sample_strategy import MixSampleStrategy
from trinity_testing.builders import an_experience


def two_rows(*, expert):
    """Return an own row of ratio 1 with A = 2, and one of probability e^-3."""
    ones = torch.ones(2, 1, dtype=torch.float64)
    logprob = torch.tensor([[-1.0], [-3.0]], dtype=torch.float64)
    return {
        "logprob": logprob,
        "old_logprob": logprob.clone(),
        "action_mask": ones.bool(),
        "advantages": 2.0 * ones,
        "expert_mask": torch.tensor(expert),
    }


def test_mix_adds_ppo_of_own_rows_to_the_likelihood_of_the_experts():
    # a share of 0.75 of minus 2, and of 0.25 of 3
    loss, metrics = MIXPolicyLossFn(mu=0.25)(**two_rows(expert=[False, True]))

    assert loss.item() == pytest.approx(-0.75)
    assert metrics["usual/pg_loss"] == pytest.approx(-2.0)
    assert metrics["expert/sft_loss"] == pytest.approx(3.0)


def test_the_published_counts_weigh_a_micro_batch():
    # k = 8 // 2 = 4; usual: 1 row * 4 / (6 // 2) = 4/3; expert: 1 * 4 / (2 // 2) = 4
    loss_fn = MIXPolicyLossFn(
        mu=0.25,
        ppo_mini_batch_size=8,
        ppo_micro_batch_size_per_gpu=2,
        ngpus_trainer=2,
        train_batch_size_usual=6,
        train_batch_size_expert=2,
    )

    loss, _ = loss_fn(**two_rows(expert=[False, True]))

    assert loss.item() == pytest.approx(0.75 * 4 / 3 * -2.0 + 0.25 * 4 * 3.0)


def test_the_masks_of_the_whole_batch_win_over_the_counts():
    # the whole batch has two own tokens: this one's share is a half
    fields = two_rows(expert=[False, True])
    loss, _ = MIXPolicyLossFn(mu=0.25, ppo_mini_batch_size=64)(
        **fields,
        whole_action_mask=torch.ones(3, 1).bool(),
        whole_expert_mask=torch.tensor([False, True, False]),
    )

    assert loss.item() == pytest.approx(0.75 * 0.5 * -2.0 + 0.25 * 3.0, abs=1e-7)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_a_part_without_rows_is_0_and_mix_reports_nothing_about_it(mode):
    fields = two_rows(expert=[True, True])
    loss, metrics = MIXPolicyLossFn(mu=0.5, loss_agg_mode=mode)(**fields)

    assert loss.item() == pytest.approx(0.5 * 2 * 2.0)  # two rows, mean 2
    assert metrics.keys() == {"expert/sft_loss", "loss"}


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_chord_reports_an_empty_part_as_0(mode):
    fields = two_rows(expert=[True, True]) | {"step": torch.tensor([7, 7])}
    _, metrics = MIXCHORDPolicyLossFn(loss_agg_mode=mode)(**fields)

    usual = {name: value for name, value in metrics.items() if name.startswith("usual/")}
    assert usual.keys() == {
        "usual/pg_clipfrac",
        "usual/pg_clipfrac_lower",
        "usual/ppo_kl",
        "usual/pg_loss",
    }
    assert set(usual.values()) == {0.0}


def test_chords_share_rises_to_the_peak_and_falls_to_the_valley():
    def shares(steps, **schedule):
        return [expert_share(s, warmup_steps=2, peak=0.5, valley=0.1, **schedule) for s in steps]

    # half way down the cosine: 0.1 + 0.4 / 2
    assert shares([0, 1, 2, 4, 6], decay_steps=4) == pytest.approx([0.0, 0.25, 0.5, 0.3, 0.1])
    # without a decay the last warm-up step is still on the line, and the next in the valley
    assert shares([1, 2, 3], decay_steps=0) == [0.25, 0.1, 0.1]


def test_rows_of_several_steps_have_no_share():
    fields = two_rows(expert=[True, False]) | {"step": torch.tensor([1, 2])}
    with pytest.raises(ValueError, match=r"must be of one step, these are of \[1, 2\]"):
        MIXCHORDPolicyLossFn()(**fields)


def test_the_entropy_of_an_experts_rows_does_not_count():
    entropy = torch.tensor([[1.0], [5.0]], dtype=torch.float64)
    mask = torch.ones(2, 1).bool()
    entropy_fn = MixEntropyLossFn(entropy_coef=0.5)

    loss, metrics = entropy_fn(entropy, mask, expert_mask=torch.tensor([False, True]))
    assert (loss.item(), metrics) == (pytest.approx(0.5), {"entropy_loss": pytest.approx(1.0)})

    nothing, _ = entropy_fn(
        entropy, mask, "seq-mean-token-mean", expert_mask=torch.tensor([True, True])
    )
    assert nothing.item() == 0.0
    with pytest.raises(ValueError, match="needs the field 'expert_mask'"):
        entropy_fn(entropy, mask)


class Source:
    def __init__(self, rows):
        self.rows = rows

    def read(self, count, *, timeout_s, min_model_version=0):
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken


def test_the_strategy_reads_both_buffers_and_marks_the_rows():
    own = [
        Experience(
            tokens=[1, 2, 3], reward=1.0, logprobs=[-1, -1], advantages=[1, 1], returns=[1, 1]
        )
        for _ in range(5)
    ]
    expert = [Experience(tokens=[1, 2]) for _ in range(5)]
    strategy = MixSampleStrategy(expert_data_ratio=0.3)
    strategy.bind(
        {"main": Source(own), "sft_dataset": Source(expert)}, train_batch_size=5, read_timeout_s=1.0
    )

    rows, _ = strategy.sample(4)
    batch = ExperienceBatch.from_experiences(rows)

    assert batch["expert_mask"].tolist() == [False] * 3 + [True] * 2  # ceil(0.3 * 5) = 2
    assert batch.batch["step"].tolist() == [4] * 5
    assert batch["advantages"][3].tolist() == [0.0, 0.0]
    assert batch["rewards"].tolist() == [1.0] * 3 + [0.0] * 2


def test_own_rows_are_put_back_where_the_experts_cannot_be_read():
    class Broken(Source):
        def read(self, count, *, timeout_s, min_model_version=0):
            raise DataError("a row of the expert cannot be read")

    own = QueueStorage(ExperienceBufferConfig())
    rows = [an_experience(run=run) for run in range(4)]
    own.write(rows)
    strategy = MixSampleStrategy(expert_data_ratio=0.5)
    strategy.bind({"own": own, "sft_dataset": Broken([])}, train_batch_size=4, read_timeout_s=1)

    with pytest.raises(DataError):
        strategy.sample(1)

    assert own.waiting() == rows


def test_the_strategy_names_the_buffer_that_is_missing():
    with pytest.raises(ValueError, match="reads the buffer 'sft_dataset', which"):
        MixSampleStrategy().bind({"main": Source([])}, train_batch_size=2, read_timeout_s=1.0)


@pytest.mark.parametrize("normalizer", ["tokens", "rows", "pairs", "sum"])
def test_a_part_without_rows_of_a_batch_without_rows_has_a_finite_weight(normalizer):
    # the own rows of a batch that is all an expert's
    nothing = torch.zeros(0, 3).bool()

    assert weight_of_part(normalizer, nothing, nothing) in {0.0, 1.0}
