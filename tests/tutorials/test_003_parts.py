"""003: what the parts of an algorithm do where a trainer calls them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from trinity.algorithm import (
    ADVANTAGE_FN,
    ALGORITHM_TYPE,
    POLICY_LOSS_FN,
    SAMPLE_STRATEGY,
    AdvantageFn,
    AlgorithmType,
    EntropyLossFn,
    KLFn,
    PolicyLossFn,
    SampleStrategy,
)
from trinity.algorithm.entropy_loss_fn import DefaultEntropyLossFn
from trinity.algorithm.kl_fn import K2KLFn
from trinity.algorithm.ops import masked_mean
from trinity.common.batch import ExperienceBatch
from trinity.common.config import AlgorithmConfig, ExplorerConfig, ModelConfig, TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.extend import get_manager

GOLDEN = Path(__file__).parents[1] / "golden/data"
KINDS = ("sample_strategy", "advantage_fn", "policy_loss_fn", "kl_fn", "entropy_loss_fn")


class CountedAdvantage(AdvantageFn):
    """Says nothing of where it is computed; counts its calls."""

    seen: ClassVar[list[type]] = []

    def __call__(self, exps, **kwargs):
        self.seen.append(type(exps))
        scores = exps.batch["token_level_rewards"].sum(-1, keepdim=True)
        exps.batch["advantages"] = exps.batch["returns"] = scores * exps.batch["response_mask"]
        return exps, {}


class NotingLoss(PolicyLossFn):
    """Keeps the first advantage of each row, in the order in which rows come."""

    rows: ClassVar[list[float]] = []

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        self.rows.extend(advantages[:, 0].tolist())
        return masked_mean(-advantages * logprob, action_mask), {}


class WithoutReference(AlgorithmType):
    """Its default configuration says the opposite of its attribute."""

    use_reference: bool = True

    @classmethod
    def default_config(cls):
        return {"use_reference": False}


class WithoutAdvantage(AlgorithmType):
    """Rows go to the loss as they came."""

    use_reference: bool = False
    use_advantage: bool = False
    can_balance_batch: bool = False


@pytest.fixture
def train(tiny_model, a_process):
    """Return a function that trains one step on the rows; gives the trainer."""
    from trinity.trainer.torch_trainer import TorchTrainer

    ADVANTAGE_FN.register_module("counted")(CountedAdvantage)
    POLICY_LOSS_FN.register_module("noting")(NotingLoss)
    ALGORITHM_TYPE.register_module("without_a_reference")(WithoutReference)
    ALGORITHM_TYPE.register_module("without_an_advantage")(WithoutAdvantage)
    CountedAdvantage.seen.clear()
    NotingLoss.rows.clear()

    def build(rows, *, budget=4096, **algorithm):
        settings = {"kl_loss_fn": "none", "entropy_loss_fn": "none", "advantage_fn": "counted"}
        config = SimpleNamespace(
            audit="warn",
            algorithm=AlgorithmConfig(**(settings | {"policy_loss_fn": "noting"} | algorithm)),
            trainer=TrainerConfig(max_token_len_per_gpu=budget),
            model=ModelConfig(),
            explorer=ExplorerConfig(),
        )
        trainer = TorchTrainer(config, model_path=str(tiny_model), total_steps=2, seed=0)
        trainer.train_step(rows, step=1)
        return trainer

    return build


def rows_of(count: int, **values) -> list[Experience]:
    """Return rows of 7 or 8 tokens, 4 of them the prompt's."""
    return [
        Experience(
            tokens=list(range(3, 10 + number % 2)),
            prompt_length=4,
            reward=float(number),
            logprobs=[-5.0] * (3 + number % 2),
            eid=EID(0, 0, number),
            **{name: value(number) for name, value in values.items()},
        )
        for number in range(count)
    ]


def test_P078_k2_as_a_penalty_lowers_rewards_and_as_a_loss_adds_its_coefficient_times_it() -> None:
    row = Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0, logprobs=[-1.0, -1.0])
    batch = ExperienceBatch.from_experiences([row])
    batch["ref_logprob"] = torch.tensor([[-3.0, -1.0]])
    k2 = K2KLFn(kl_coef=0.1)

    penalised, _ = k2.apply_kl_penalty_to_reward(batch)
    loss, _ = k2.calculate_kl_loss(
        torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[1]])
    )

    # (-1 - -3)^2 / 2 = 2 at the first token; 0 at the second, which carries the reward of 1
    assert isinstance(k2, KLFn)
    assert penalised["token_level_rewards"].tolist() == [[pytest.approx(-0.2), 1.0]]
    assert loss.item() == pytest.approx(0.2)


def test_P079_an_entropy_loss_is_the_mean_entropy_by_its_coefficient() -> None:
    entropy_loss = DefaultEntropyLossFn(entropy_coef=0.5)

    loss, _ = entropy_loss(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]]))

    assert isinstance(entropy_loss, EntropyLossFn)
    assert abs(loss.item()) == pytest.approx(1.0)  # 0.5 x (1 + 3) / 2
    assert json.loads((GOLDEN / "kl_entropy.json").read_text())


def test_P144_a_default_configuration_without_a_reference_builds_none(train) -> None:
    trainer = train(rows_of(2), algorithm_type="without_a_reference", kl_loss_fn="k2")

    assert trainer._scorer.reference is None


def test_P147_without_advantages_none_is_computed_and_rows_stay_in_order(train) -> None:
    rows = rows_of(5, advantages=lambda number: [float(number)] * (3 + number % 2))

    train(rows, budget=16, algorithm_type="without_an_advantage")

    assert CountedAdvantage.seen == []
    assert NotingLoss.rows == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_P149_an_advantage_function_that_declares_nothing_gets_the_batch(train) -> None:
    train(rows_of(2), algorithm_type="without_a_reference")

    assert CountedAdvantage.seen == [ExperienceBatch]


class Rows:
    """A source of rows that counts what was read."""

    def __init__(self, rows: list[Experience]) -> None:
        self.rows = rows

    def read(self, count, *, timeout_s, min_model_version=0):
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken


def test_P148_a_strategy_filters_and_mix_reads_a_second_buffer_by_its_ratio() -> None:
    class OnlyGood(SampleStrategy):
        def sample(self, step):
            rows = self.source.read(4, timeout_s=1.0)
            return [row for row in rows if row.reward > 1.0], {}

    own, expert = rows_of(8), [Experience(tokens=[1, 2]) for _ in range(4)]
    filtering, mixing = OnlyGood(), SAMPLE_STRATEGY.get("mix")(expert_data_ratio=0.25)
    filtering.bind({"main": Rows(own)}, train_batch_size=4, read_timeout_s=1.0)
    sources = {"main": Rows(own), "sft_dataset": Rows(expert)}
    mixing.bind(sources, train_batch_size=4, read_timeout_s=1.0)

    good, _ = filtering.sample(1)
    mixed, _ = mixing.sample(1)

    assert [row.reward for row in good] == [2.0, 3.0]
    assert [row.info["is_expert"] for row in mixed] == [False, False, False, True]
    assert json.loads((GOLDEN / "sample_strategy.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_P161_each_kind_has_two_or_more_built_in_parts(kind) -> None:
    own = [c for c in get_manager().components(kind) if c.origin.distribution == "trinity-core"]

    assert len({component.name for component in own}) >= 2
