"""What goes wrong is said to the one whose request it was, and to nobody else."""

import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from trinity.common.ports import RunKey, WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity_testing.tiny import make_tiny_model


def test_a_model_that_is_none_is_refused(tmp_path, start, golden):
    with pytest.raises(ModelError) as caught:
        start(tmp_path)
    golden(str(caught.value), "model_folder_is_none", FOLDER=tmp_path)
    with pytest.raises(ModelError) as caught:
        start(tmp_path / "nowhere")
    golden(str(caught.value), "model_folder_missing", FOLDER=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="is a file, not a model folder"):
        start(tmp_path / "file")


def test_a_model_without_all_its_weights_is_refused(tmp_path, start, golden):
    path = make_tiny_model(tmp_path)
    weights = load_file(path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError) as caught:
        start(path)
    golden(str(caught.value), "model_lacks_weights", FOLDER=tmp_path)


def test_a_broken_weights_file_is_refused(tmp_path, start):
    path = make_tiny_model(tmp_path)
    (path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(ModelError, match="cannot be loaded"):
        start(path)


def test_an_unknown_dtype_is_refused(tiny, start):
    with pytest.raises(ModelError, match="use one of auto, float32, bfloat16, float16"):
        start(tiny, dtype="fp8")


def test_a_prompt_that_fills_the_context_is_refused(tiny, start, ask, golden):
    with pytest.raises(ModelError) as caught:
        start(tiny, max_model_len=8).submit(ask(range(5, 13)))
    golden(str(caught.value), "prompt_fills_context")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": ()}, "the prompt is empty"),
        ({"prompt": (5, 384)}, "token 384, but the model knows tokens 0 to 383"),
        ({"prompt": (-1, 5)}, "token -1"),
        ({"n": 0}, "n is 0; it must be at least 1"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_k": -2}, "top_k is -2"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(options, words, tiny, start, ask):
    with pytest.raises(ModelError, match=words):
        start(tiny).submit(ask(**options))


def test_a_batch_that_fails_takes_only_its_own_requests_along(tiny, start, ask, answers):
    model = AutoModelForCausalLM.from_pretrained(tiny)

    def fail_on_long(_module, _args, kwargs):
        if kwargs["input_ids"].shape[1] > 10:
            raise RuntimeError("out of memory")

    model.register_forward_pre_hook(fail_on_long, with_kwargs=True)
    engine = start(tiny, module=model, max_batch_rows=1)
    good, bad = engine.submit(ask(task=0)), engine.submit(ask(range(5, 25), task=1))
    assert len(good.result(60)) == 1
    with pytest.raises(ModelError, match="RuntimeError: out of memory") as caught:
        bad.result(60)
    assert isinstance(caught.value.__cause__, RuntimeError)
    answers(engine, ask())  # the engine goes on


def out_of_memory_beyond(rows):
    """Return a model's hook, which finds memory for so many rows at a time."""

    def check(_module, _args, kwargs):
        if len(kwargs["input_ids"]) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")

    return check


def test_a_batch_that_fills_the_memory_goes_on_with_fewer_replies(
    tiny, start, ask, answers, caplog
) -> None:
    requests = [ask(task=task, n=4, prompt=(5, 6, 7 + task)) for task in range(3)]
    expected = answers(start(tiny), *requests)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    model.register_forward_pre_hook(out_of_memory_beyond(5), with_kwargs=True)
    engine = start(tiny, module=model)

    found = answers(engine, *requests)

    assert [[one.token_ids for one in replies] for replies in found] == [
        [one.token_ids for one in replies] for replies in expected
    ]
    (said,) = [line for line in caplog.messages if "ran out of memory" in line]
    assert "at most 6 replies at a time; before, it had 12" in said


def test_one_reply_that_fills_the_memory_is_told_with_the_keys_to_change(tiny, start, ask) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny)
    model.register_forward_pre_hook(out_of_memory_beyond(0), with_kwargs=True)
    engine = start(tiny, module=model)

    with pytest.raises(ModelError, match=r"memory in the rollout \(of one reply\): 2.00 MiB more"):
        engine.submit(ask(n=2)).result(60)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_diverged_is_said_to_have(temperature, tiny, start, ask, golden):
    model = AutoModelForCausalLM.from_pretrained(tiny)
    tensors = model.state_dict() | {"model.norm.weight": torch.full((64,), torch.nan)}
    engine = start(tiny)
    engine.load_weights(WeightSnapshot(version=WeightVersion(5), tensors=tensors))
    with pytest.raises(ModelError) as caught:
        engine.submit(ask(temperature=temperature, n=2)).result(60)
    golden(str(caught.value), "engine_model_diverged")


def test_closing_fails_the_waiting_requests(tiny, start, ask):
    engine = start(tiny)
    engine.run_began(RunKey())
    engine.run_began(RunKey(run=1))  # never asks: the request waits
    future = engine.submit(ask())
    engine.close()
    with pytest.raises(ModelError, match="closed before it answered"):
        future.result(10)
    with pytest.raises(ModelError, match="is closed"):
        engine.submit(ask())


def test_closing_ends_a_long_batch(tiny, start, ask):
    engine = start(tiny, max_model_len=2048)
    future = engine.submit(ask(max_new_tokens=2000, n=64, ignore_eos=True))
    while not future.running():
        time.sleep(0.001)
    engine.close()
    with pytest.raises(ModelError, match="closed"):
        future.result(10)


def test_a_request_that_was_given_up_is_not_computed(tiny, start, ask, answers):
    engine = start(tiny, gate_patience_s=30.0)
    engine.run_began(RunKey(run=0))
    engine.run_began(RunKey(run=1))
    given_up = engine.submit(ask(run=1))
    assert given_up.cancel()
    engine.run_ended(RunKey(run=1))
    assert len(answers(engine, ask(run=0))) == 1


def test_the_time_spent_on_generating_is_counted(tiny, start, ask, answers):
    engine = start(tiny)
    assert engine.busy_s == 0
    answers(engine, ask())
    assert 0 < engine.busy_s < 30
