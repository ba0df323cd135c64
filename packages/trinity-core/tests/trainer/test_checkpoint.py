from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity.errors import CheckpointError
from trinity.trainer.checkpoint import load_state, save_state
from trinity_testing.tiny import make_tiny_model

FROZEN = Path(__file__).with_name("frozen_shards.tar.xz")


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.snapshot(copy=True).tensors.items()}


def numbers(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def test_a_checkpoint_goes_on_as_if_nothing_had_happened(a_trainer, ragged, tmp_path):
    trainer, resumed = a_trainer(), a_trainer()
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)
    resumed.load(tmp_path)

    assert resumed.version == trainer.version == 1
    assert numbers(resumed.train_step(ragged(), step=2)) == numbers(
        trainer.train_step(ragged(), step=2)
    )
    assert all(torch.equal(w, weights(resumed)[name]) for name, w in weights(trainer).items())


def test_a_full_disk_is_told_as_the_system_says_it(a_trainer, ragged, tmp_path, full_beyond):
    """Of a file that it cannot write to its end, torch names the byte only."""
    trainer = a_trainer()
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)
    size = (tmp_path / "trainer.pt").stat().st_size
    state = load_state(tmp_path)
    for limit in (1, size // 2, size - 1):
        with full_beyond(limit), pytest.raises(OSError, match="File too large"):
            save_state(tmp_path, state)


def test_shards_that_two_ranks_of_an_earlier_version_wrote_load_bit_for_bit(a_trainer, tmp_path):
    """Beside them lies the same state as they wrote it in full: commit 6e73c0d and later."""
    with tarfile.open(FROZEN) as archive:
        archive.extractall(tmp_path, filter="data")
    model = make_tiny_model(tmp_path / "model", vocab=384, hidden=8, layers=1, heads=2)
    of_shards, full = a_trainer(model_path=model), a_trainer(model_path=model)
    of_shards.load(tmp_path / "in_parts")
    full.load(tmp_path / "whole")

    assert of_shards.version == full.version == 2
    assert all(torch.equal(w, weights(full)[name]) for name, w in weights(of_shards).items())
    found, expected = (t._optimizer.state_dict()["state"] for t in (of_shards, full))
    assert len(found) == len(expected) == 13
    for number, entry in expected.items():
        assert entry.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(value, found[number][name]) for name, value in entry.items())


def test_a_checkpoint_loads_into_the_same_tensors(a_trainer, ragged, tmp_path):
    trainer = a_trainer()
    trainer.save(tmp_path)
    shared = trainer.snapshot(copy=False).tensors
    trainer.train_step(ragged(), step=1)

    trainer.load(tmp_path)

    assert all(torch.equal(w, shared[name]) for name, w in weights(trainer).items())


def test_a_damaged_checkpoint_is_named(a_trainer, tmp_path):
    trainer = a_trainer()
    trainer.save(tmp_path)
    (tmp_path / "trainer.pt").write_bytes(b"half a fi")

    with pytest.raises(CheckpointError, match=r"trainer\.pt' cannot be read"):
        trainer.load(tmp_path)


def test_the_saved_model_loads_as_any_other(a_trainer, ragged, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trainer = a_trainer()
    trainer.train_step(ragged(), step=1)
    trainer.save_hf(tmp_path)

    loaded = dict(AutoModelForCausalLM.from_pretrained(tmp_path).named_parameters())
    assert all(torch.equal(w, loaded[name]) for name, w in weights(trainer).items())
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template


def test_a_snapshot_names_tied_weights_once(a_trainer):
    tensors = a_trainer().snapshot(copy=False).tensors

    assert "model.embed_tokens.weight" in tensors
    assert "lm_head.weight" not in tensors


def test_a_copied_snapshot_stays_as_it_is(a_trainer, ragged):
    trainer = a_trainer()
    kept, live = trainer.snapshot(copy=True), trainer.snapshot(copy=False)

    trainer.train_step(ragged(), step=1)

    name = "model.embed_tokens.weight"
    assert (kept.version, trainer.snapshot(copy=False).version) == (0, 1)
    assert not torch.equal(kept.tensors[name], live.tensors[name])
    assert torch.equal(live.tensors[name], trainer.model.model.embed_tokens.weight)


def test_code_that_is_trusted_at_the_start_is_trusted_at_a_checkpoint(
    a_trainer, tmp_path, monkeypatch
):
    trainer = a_trainer()
    trainer._config.model.trust_remote_code = True
    trusted = []
    for loader in (AutoModelForCausalLM, AutoTokenizer):
        load = loader.from_pretrained

        def noted(*args, load=load, trust_remote_code=False, **options):
            trusted.append(trust_remote_code)
            return load(*args, **options)

        monkeypatch.setattr(loader, "from_pretrained", noted)
    trainer.save(tmp_path)
    trainer.load(tmp_path)
    assert trusted == [True, True]
