"""The trainer's worker, made as any object: it trains on packets and gives weights as bytes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.ports import Trainer, WeightSnapshot
from trinity.common.wire import encode
from trinity.extend import ComponentSpec
from trinity.runtime.ray.trainer_worker import TrainerWorker
from trinity.runtime.ray.worker import WorkerContext
from trinity.runtime.record.rundir import RunDir


class AddingTrainer(Trainer):
    """Adds each reward to its one weight."""

    save = load = None  # nobody calls them

    def __init__(self, config, *, model_path, total_steps, seed):
        self.weight = torch.zeros(1)
        self.total_steps = total_steps
        self.version = 0

    def train_step(self, experiences, *, step):
        self.weight += sum(experience.reward for experience in experiences)
        self.version = step
        return {"loss": 1.0}

    def snapshot(self, *, copy):
        assert not copy
        return WeightSnapshot(version=self.version, tensors={"weight": self.weight})


@pytest.fixture
def context(tmp_path):
    component = SimpleNamespace(
        kind="trainer", name="adding", spec=ComponentSpec("a:B"), load=lambda: AddingTrainer
    )
    manager = SimpleNamespace(find=lambda kind, name: component, load=lambda kind, name: None)
    config = Config(buffer={"record_samples": False})
    return WorkerContext(name="trainer", config=config, rundir=RunDir(tmp_path), manager=manager)


@pytest.mark.parametrize("waits", [False, True])
def test_one_alone_makes_its_trainer_once_and_at_once_unless_it_waits(context, waits) -> None:
    worker = TrainerWorker(context, total_steps=5, waits=waits)
    made = worker._trainer
    assert (made is None) is waits

    worker.start_training("")

    assert worker._trainer is (made or worker._trainer)
    assert worker._trainer.total_steps == 5


def test_a_packet_is_trained_on_and_the_weights_after_it_are_the_payload(context) -> None:
    worker = TrainerWorker(context, total_steps=5)
    packet = encode([Experience(tokens=[1, 2], reward=reward) for reward in (0.5, 2.0)])

    metrics = worker.train_step(packet, step=1)
    snapshot = worker.snapshot()

    assert metrics == {"loss": 1.0}
    assert snapshot.value == snapshot.payload.version == 1
    assert snapshot.payload.snapshot().tensors["weight"].tolist() == [2.5]


def test_a_rank_that_never_met_the_others_has_nothing_to_close(tmp_path) -> None:
    manager = SimpleNamespace(load=lambda kind, name: AddingTrainer)
    context = WorkerContext(
        name="trainer-1", config=Config(), rundir=RunDir(tmp_path), manager=manager
    )

    TrainerWorker(context, total_steps=5, rank=1, num_ranks=2).close()
