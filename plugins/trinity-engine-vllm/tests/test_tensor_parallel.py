"""Weights on their way to worker processes, without vLLM."""

import os
from pathlib import Path

import pytest
import torch
from trinity_engine_vllm.tensor_parallel import WorkerSide, _as_file, spreads


class Worker(WorkerSide):
    def __init__(self):
        self.took = {}

    def reload_weights(self, *, weights_iterator):
        self.took.update((name, tensor.clone()) for name, tensor in weights_iterator)


def in_memory():
    return [link for link in Path("/proc/self/fd").iterdir() if "trinity-weights" in target(link)]


def target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:  # the folder itself
        return ""


def test_tensors_arrive_as_they_are_tied_and_cut_ones_too_and_the_file_is_gone() -> None:
    flat = torch.arange(12.0)
    tensors = {
        "embed_tokens.weight": flat[:6].view(2, 3),
        "lm_head.weight": flat[:6].view(2, 3),
        "turned": flat[6:].view(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    worker = Worker()
    with _as_file(tensors) as path:
        assert len(in_memory()) == 1
        worker.trinity_load(path, False)

    assert worker.took.keys() == tensors.keys()
    assert all(torch.equal(worker.took[name], tensor) for name, tensor in tensors.items())
    assert worker.took["half"].dtype == torch.bfloat16
    assert in_memory() == []


def test_the_file_is_gone_after_a_failure() -> None:
    with pytest.raises(RuntimeError), _as_file({"a": torch.ones(1)}):
        raise RuntimeError
    assert in_memory() == []


def test_one_worker_is_this_process() -> None:
    assert not spreads({})
    assert not spreads({"tensor_parallel_size": 1})
    assert spreads({"tensor_parallel_size": 2})
