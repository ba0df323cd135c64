"""Two processes that train one model, against one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trinity.errors import CheckpointError, TrinityError
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.progress import Progress
from trinity.trainer import rendezvous
from trinity_testing.tiny import make_tiny_model

# In .ci/run, two ranks against one process: tests/e2e/test_ray_ranks.py.
pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

SCRIPT = Path(__file__).with_name("data_parallel.py")
_spec = importlib.util.spec_from_file_location("data_parallel", SCRIPT)
data_parallel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(data_parallel)


def run_together(folder, model_path, *, size=2):
    """Return what each of some processes found."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(model_path), str(folder), str(rank), str(size)],
            env=environment,
        )
        for rank in range(size)
    ]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * size
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(size)]


@pytest.fixture(scope="module")
def of_two(tiny, tmp_path_factory):
    """Return what each of two processes found."""
    folder = tmp_path_factory.mktemp("two")
    make_tiny_model(folder / "narrow", heads=2)  # one key-value head, which both need
    make_tiny_model(folder / "three", heads=3, hidden=48)
    make_tiny_model(folder / "gemma2", architecture="gemma2")  # caps what it attends to
    untied = make_tiny_model(folder / "untied", tie_embeddings=False)
    (folder / "config").mkdir()
    shutil.copy(untied / "config.json", folder / "config")
    alone = data_parallel.a_spread_trainer(tiny, "apart")
    alone.train_step(data_parallel.rows(), step=1)
    alone.save(folder / "alone")
    return run_together(folder, tiny), folder


def test_two_processes_have_the_gradient_of_one(of_two, tiny):
    (first, second), _ = of_two
    trainer = data_parallel.a_trainer(tiny)
    batch, _ = trainer._preparation.batch_of(
        data_parallel.rows(), lambda name: nullcontext(), version=0
    )
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    expected = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])

    assert min(first["own"], second["own"]) >= 1
    for found in (first, second):
        assert (found["gradient"] - expected).norm() <= 5e-6 * expected.norm()


def test_they_stay_together_and_report_the_whole_batch(of_two, tiny):
    (first, second), _ = of_two
    expected = data_parallel.trained(data_parallel.a_trainer(tiny))

    assert first["metrics"] == second["metrics"]
    assert all(torch.equal(w, second["weights"][name]) for name, w in first["weights"].items())
    for name in ("actor/loss", "actor/kl_loss", "actor/entropy_loss", "critic/vf_loss"):
        assert first["metrics"][name] == pytest.approx(expected["metrics"][name], rel=1e-3), name
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(first["weights"][name], weight, rtol=1e-3, atol=1e-4)


def test_an_error_of_one_is_everybodys_and_one_of_them_saves(of_two):
    (first, second), folder = of_two

    assert "train step 9 stopped" in first["error"]
    assert first["error"] == second["error"]
    assert (folder / "saved").is_dir()


@pytest.mark.parametrize("way", data_parallel.WAYS)
def test_ranks_that_share_the_weights_have_the_gradient_of_one(of_two, tiny, way) -> None:
    """Rows apart leave one rank idle in the last round; a stem takes two passes of both."""
    expected, _ = data_parallel.gradient_of(data_parallel.a_spread_trainer(tiny, way), way)

    for found in of_two[0]:
        gradient, stems = found[way]
        assert (gradient - expected).norm() <= 1e-6 * expected.norm()
    assert [bool(stem) for stem in stems].count(True) == (way == "stem")
    assert len(stems) % 2 == (way == "apart")


def test_ranks_that_gather_rounded_weights_are_as_close_as_one_process_that_rounds_products(
    of_two, tiny
) -> None:
    """Both are 0.022 of the norm away from the gradient in float32."""
    expected, _ = data_parallel.gradient_of(data_parallel.a_spread_trainer(tiny, "apart"), "apart")

    first, second = of_two[0]
    assert torch.equal(first["bfloat16"], second["bfloat16"])
    assert (first["bfloat16"] - expected).norm() <= 0.03 * expected.norm()


def test_ranks_beside_the_first_read_no_weights(of_two) -> None:
    """Their folder has only the model's configuration; its output layer is not the embedding."""
    found_of_two, folder = of_two
    alone = data_parallel.a_spread_trainer(folder / "untied", "mask")
    expected, _ = data_parallel.gradient_of(alone, "mask")

    for found in found_of_two:
        assert (found["untied"] - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize("way", data_parallel.WAYS)
def test_ranks_that_have_as_many_tokens_have_the_gradient_of_one(of_two, tiny, way) -> None:
    """The longest row goes to who has least: 16 14 13 11 11 and 16 14 12 12 9 9 tokens.

    Two prompts are two trees. A stem of 150 with 200 after it stays whole: 215 and 235 of it,
    in two packs, would leave one of the ranks more.
    """
    expected_tokens = {"apart": [65, 72], "mask": [34, 29], "stem": [350, 127]}
    expected, _ = data_parallel.gradient_of(data_parallel.a_spread_trainer(tiny, way), way)

    for found in of_two[0]:
        gradient, tokens = found["even", way]
        assert (gradient - expected).norm() <= 2e-6 * expected.norm()
        assert tokens == expected_tokens[way]


def test_a_weight_without_a_gradient_is_left_alone_as_by_one_process(of_two) -> None:
    """AdamW's first step takes lr off, after lr x decay of the weight: 0.95 - 0.1."""
    alone = data_parallel.trained_without_gradient()

    assert alone == pytest.approx([0.85, 0.85, 1.0])
    for found in of_two[0]:
        assert found["idle"] == pytest.approx(alone)


def test_their_checkpoint_is_that_of_one_process_and_so_is_what_they_go_on_from(
    of_two, tiny
) -> None:
    """One process trains, two go on with parts of its weights, and one goes on from these."""
    (first, second), folder = of_two
    alone, after = (data_parallel.a_spread_trainer(tiny, "apart") for _ in range(2))
    alone.load(folder / "alone")
    metrics = alone.train_step(data_parallel.rows(), step=2)
    after.load(folder / "spread")

    for name, value in metrics.items():
        if not name.startswith(("time/", "perf/")):
            assert first["spread"]["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-6)
    for number in (3, 4):
        expected, found = (
            trainer.train_step(data_parallel.rows(), step=number) for trainer in (alone, after)
        )
        assert found["actor/loss"] == pytest.approx(expected["actor/loss"], abs=1e-5)
    assert first["spread"]["error"] == second["spread"]["error"]
    assert "train step 3 stopped" in first["spread"]["error"]
    told = [
        json.loads((place / "generation_config.json").read_text())["eos_token_id"]
        for place in (tiny, folder / "spread" / "huggingface")
    ]
    assert told[0] == told[1]
    whole = load_file(folder / "spread" / "huggingface/model.safetensors")
    assert first["spread"]["streamed"].keys() == whole.keys()
    for name, weight in first["spread"]["streamed"].items():  # gathered one at a time, rounded
        assert torch.equal(weight, whole[name].bfloat16())


def test_parts_that_two_ranks_write_go_on_with_one_and_with_two(of_two, tiny) -> None:
    (first, second), folder = of_two
    alone = data_parallel.a_spread_trainer(tiny, "apart")
    alone.load(folder / "alone")
    expected = [alone.train_step(data_parallel.rows(), step=n)["actor/loss"] for n in range(2, 6)]

    assert first["spread"]["losses"] == pytest.approx(expected, abs=1e-5)
    assert second["spread"]["losses"] == pytest.approx([expected[0], *expected[2:]], abs=1e-5)
    assert not (folder / "one" / "shards").exists()
    assert {path.name for path in (folder / "parts" / "shards").iterdir()} == {
        "part-00001-of-00002.safetensors",
        "part-00002-of-00002.safetensors",
    }
    whole, parts = (
        load_file(folder / name / "huggingface/model.safetensors") for name in ("spread", "parts")
    )
    assert all(torch.equal(weight, parts[name]) for name, weight in whole.items())


def test_ranks_that_offload_have_the_bits_of_those_that_do_not(of_two) -> None:
    """Gradients in all ways, three steps, and a fourth from what the other of the two saved."""
    for found in of_two[0]:
        kinds = {key[:-1] for key in found["offloaded"]}
        assert len(kinds) == 7
        for kind in kinds:
            ours, theirs = (found["offloaded"][*kind, is_off] for is_off in (True, False))
            if kind[0] == "gradient":
                assert torch.equal(ours, theirs), kind
                continue
            assert ours["metrics"] == theirs["metrics"], kind
            assert ours["weights"].keys() == theirs["weights"].keys()
            for name, weight in theirs["weights"].items():
                assert torch.equal(ours["weights"][name], weight), (kind, name)
    assert of_two[0][0]["offloaded"]["fourth", 0, True]["weights"]


@pytest.mark.parametrize("harm", ["missing", "cut off", "of another save"])
def test_a_part_that_is_not_there_or_not_whole_is_named(of_two, tiny, tmp_path, harm) -> None:
    folder = shutil.copytree(of_two[1] / "parts", tmp_path / "parts")
    path = folder / "shards" / "part-00002-of-00002.safetensors"
    if harm == "missing":
        path.unlink()
    elif harm == "cut off":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        path = path.rename(path.with_name("part-00001-of-00001.safetensors"))
        shutil.copy(path, path.with_name("part-00002-of-00002.safetensors"))
    trainer = data_parallel.a_spread_trainer(tiny, "apart")

    with pytest.raises(CheckpointError) as refused:
        trainer.load(folder)

    assert str(path) in str(refused.value)


@pytest.mark.parametrize("layers", [1, 3])
def test_parts_of_a_model_with_other_layers_are_refused(of_two, tmp_path, layers) -> None:
    other = make_tiny_model(tmp_path / "other", layers=layers)

    with pytest.raises(CheckpointError, match="is of another model: 'model"):
        data_parallel.a_spread_trainer(other, "apart").load(of_two[1] / "parts")


def test_parts_that_ranks_leave_on_two_disks_are_missed_at_once(of_two) -> None:
    """Else the run would find out when it is to go on."""
    (first, second), folder = of_two

    assert f"{folder}/disk-0/shards/part-00002-of-00002" in first["spread"]["elsewhere"]
    assert "Set checkpoint_root_dir to a folder" in first["spread"]["elsewhere"]
    assert second["spread"]["elsewhere"] == first["spread"]["elsewhere"]


def test_a_kill_while_parts_are_written_leaves_the_checkpoint_before_it(of_two, tmp_path) -> None:
    """And a part whose bytes changed on the disk is told by its name, which the manifest knows."""
    parts = of_two[1] / "parts" / "shards"
    values = {key: {} for key in ("explorer", "strategy", "storage", "files")}
    progress = asdict(Progress(train_steps=1))
    state = values | {"mode": "both", "progress": progress, "digest": "ab", "plugins": []}
    store = CheckpointStore(tmp_path)
    store.save(1, state=state, experiences=[], write_actor=lambda to: copied(parts, to / "shards"))
    child = os.fork()
    if child == 0:

        def killed(to):
            (to / "shards").mkdir()
            shutil.copy(parts / "part-00001-of-00002.safetensors", to / "shards")
            os.kill(os.getpid(), signal.SIGKILL)

        store.save(2, state=state, experiences=[], write_actor=killed)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL

    store.recover()
    assert store.newest_whole(say=print).step == 1
    path = store.latest().actor / "shards" / "part-00002-of-00002.safetensors"
    body = bytearray(path.read_bytes())
    body[-5] ^= 1
    path.write_bytes(body)
    with pytest.raises(CheckpointError, match=r"part-00002-of-00002\.safetensors is damaged"):
        store.newest_whole(say=print)


def copied(source, target):
    shutil.copytree(source, target)


def gradient_of_one(model_path, way):
    trainer = data_parallel.a_spread_trainer(model_path, way, budget=data_parallel.BUDGETS[way])
    return data_parallel.gradient_of(trainer, way)[0]


@pytest.mark.parametrize("way", data_parallel.WAYS)
def test_ranks_that_share_each_sequence_have_the_gradient_of_one(of_two, tiny, way) -> None:
    """With whole models and with spread ones; and where a key-value head is on both ranks."""
    found_of_two, folder = of_two
    expected, narrow = (gradient_of_one(path, way) for path in (tiny, folder / "narrow"))

    for found in found_of_two:
        for strategy in ("ddp", "fsdp2"):
            difference = found["sequences"][strategy, way] - expected
            assert difference.norm() <= 1e-6 * expected.norm()
        assert (found["narrow"]["ddp", way] - narrow).norm() <= 1e-6 * narrow.norm()


def test_a_model_whose_sequences_cannot_be_shared_is_refused_on_all_ranks(of_two) -> None:
    (first, second), _ = of_two

    heads, caps = first["refused"]
    assert "is 2, which does not divide the model's 3 attention heads. Use a number" in heads
    assert "the attention of model type 'gemma2' cannot be shared between ranks" in caps
    assert second["refused"] == first["refused"]


@pytest.mark.acceptance
@pytest.mark.parametrize("size", [2, 4])
def test_four_ranks_share_sequences_in_pairs_or_all_of_them(tmp_path, size) -> None:
    """Also with windows, in all layers or in some, and with activations computed again."""
    models = tmp_path / "models"
    make_tiny_model(models / "grouped")
    windows = {"sliding_window": 7}
    mixed = {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}
    for name, changes in (("mistral", windows), ("qwen2", windows | mixed)):
        path = make_tiny_model(models / name, architecture=name) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    found = run_together(tmp_path, "sequences", size=size)

    for name in ("grouped", "mistral", "qwen2"):
        expected = {way: gradient_of_one(models / name, way) for way in data_parallel.WAYS}
        for (model, _, _), gradients in found[0].items():
            for (_, way), gradient in gradients.items() if model == name else ():
                difference = (gradient - expected[way]).norm() / expected[way].norm()
                assert difference <= 5e-6, (model, way)  # a star's branches may be cut otherwise


def test_a_rank_that_meets_nobody_names_the_network_interface_of_both_libraries(
    monkeypatch,
) -> None:
    def silent(*_, **__):
        raise RuntimeError("wait timeout after 5000ms")

    monkeypatch.setattr(rendezvous, "connect", silent)

    with pytest.raises(TrinityError) as refused:
        rendezvous.init_process_group("10.0.0.1:9/secret", rank=1, size=2, timeout_s=5.0)

    assert str(refused.value) == (
        "rank 1 of the trainer's 2 did not meet the others at 10.0.0.1:9 within 5 s: wait timeout "
        "after 5000ms. Ranks on several machines must reach each other; GLOO_SOCKET_IFNAME and "
        "NCCL_SOCKET_IFNAME name the interface that they use."
    )
