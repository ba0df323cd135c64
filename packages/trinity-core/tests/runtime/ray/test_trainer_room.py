"""The trainer's worker, made as any object: it trains on packets and gives weights as bytes."""

from __future__ import annotations

from types import SimpleNamespace

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


def test_a_packet_is_trained_on_and_the_weights_after_it_are_the_payload(tmp_path) -> None:
    component = SimpleNamespace(
        kind="trainer", name="adding", spec=ComponentSpec("a:B"), load=lambda: AddingTrainer
    )
    manager = SimpleNamespace(find=lambda kind, name: component)
    config = Config(buffer={"record_samples": False})
    context = WorkerContext(name="trainer", config=config, rundir=RunDir(tmp_path), manager=manager)
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
