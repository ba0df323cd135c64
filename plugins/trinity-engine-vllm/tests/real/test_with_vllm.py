"""The engine with the real vLLM on a CPU; run by ``nox -s vllm``."""

import time
from concurrent.futures import CancelledError

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity_engine_vllm import weights
from trinity_engine_vllm.engine import VLLMEngine

PROMPT = tuple(range(5, 45))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_transformers(
    engine, tied, ask, teacher_forced, temperature
) -> None:
    replies = engine.submit(ask(n=8, temperature=temperature, max_new_tokens=40)).result(60)

    assert len({reply.token_ids for reply in replies}) == 8
    for reply in replies:
        wanted = teacher_forced(tied, (5, 6, 7), reply.token_ids, temperature=temperature)
        assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
        assert reply.finish_reason == ("stop" if reply.token_ids[-1] in {0, 2} else "length")


def test_greedy_is_greedy_and_its_log_probability_at_temperature_one(
    engine, tied, ask, teacher_forced
) -> None:
    first, second = engine.submit(ask(n=2, temperature=0.0)).result(60)
    assert first.token_ids == second.token_ids
    assert list(first.logprobs) == pytest.approx(
        teacher_forced(tied, (5, 6, 7), first.token_ids), abs=1e-4
    )


def test_a_reply_is_a_function_of_its_key(engine, ask) -> None:
    alone = engine.submit(ask(task=3, n=2)).result(60)
    futures = [engine.submit(ask(task=task, n=2)) for task in range(6)]
    beside = [future.result(60) for future in futures]

    assert [r.token_ids for r in beside[3]] == [r.token_ids for r in alone]
    assert len({r.token_ids for replies in beside for r in replies}) == 12


def test_more_prompts_at_once_than_a_step_reads_are_all_answered(engine, ask) -> None:
    # A prompt that is read in two steps ended all requests of the first: "CPU Generator does not
    # use offset".
    prompts = [[5 + (7 * task + place) % 300 for place in range(100)] for task in range(100)]
    futures = [engine.submit(ask(prompts[i], task=i, max_new_tokens=2)) for i in range(100)]

    assert all(len(future.result(100)) == 1 for future in futures)


def test_a_stop_string_ends_with_the_token_that_completes_it(engine, tied, ask) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tied)
    text = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)  # noqa: E731
    (free,) = engine.submit(ask(max_new_tokens=60, ignore_eos=True)).result(60)
    stop = next(
        said
        for i in range(10, 58)
        if "\ufffd" not in (said := text(free.token_ids[i : i + 2])) and len(said) > 2
    )
    (cut,) = engine.submit(ask(max_new_tokens=60, ignore_eos=True, stop=(stop,))).result(60)

    end = next(i for i in range(1, 61) if stop in text(free.token_ids[:i]))
    assert cut.token_ids == free.token_ids[:end]
    assert len(cut.logprobs) == end
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)


def test_a_stop_token_is_kept(engine, ask) -> None:
    (free,) = engine.submit(ask(ignore_eos=True)).result(60)
    token = free.token_ids[6]
    (cut,) = engine.submit(ask(ignore_eos=True, stop_token_ids=(token,))).result(60)

    assert cut.token_ids == free.token_ids[: free.token_ids.index(token) + 1]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", None)


def test_a_request_that_is_given_up_frees_its_place(engine, ask) -> None:
    given_up = engine.submit(ask(max_new_tokens=120, ignore_eos=True))
    other = engine.submit(ask(task=1, max_new_tokens=4, ignore_eos=True))
    assert given_up.cancel()

    assert len(other.result(60)[0].token_ids) == 4
    with pytest.raises(CancelledError):
        given_up.result(0)
    assert engine.num_open == 0


def test_scores_are_those_of_transformers(engine, tied, teacher_forced) -> None:
    text = tuple(range(5, 25))
    assert engine.score(text).result(60) == pytest.approx(
        teacher_forced(tied, text[:1], text[1:]), abs=1e-4
    )
    with pytest.raises(ModelError, match=r"temperature is 0\.7"):
        engine.score(text, 0.7)


def test_what_cannot_be_told_is_refused_by_name(engine, ask) -> None:
    with pytest.raises(ModelError, match=r"^top_p 0\.9, top_k 5: this engine was started for"):
        engine.submit(ask(top_p=0.9, top_k=5))
    with pytest.raises(ModelError, match="vLLM samples at 0"):
        engine.submit(ask(temperature=0.001))
    with pytest.raises(ModelError, match="the prompt has 128 tokens"):
        engine.submit(ask(range(128)))
    assert engine.num_open == 0


def changed(path, *, factor):
    """Return another model with the same names, and its weights."""
    module = AutoModelForCausalLM.from_pretrained(path)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(factor * weight.std() * torch.randn(weight.shape, generator=generator))
    tensors = {name: weight.detach() for name, weight in module.named_parameters()}
    return module, tensors


@pytest.mark.parametrize("is_tied", [True, False])
def test_new_weights_are_in_use_in_every_layer_and_the_prefix_cache_is_gone(
    folder, ask, teacher_forced, is_tied
) -> None:
    path = folder(is_tied=is_tied)
    engine = VLLMEngine(model_path=str(path), max_model_len=128)
    try:
        engine.submit(ask(PROMPT)).result(60)
        for version in (1, 2):
            module, tensors = changed(path, factor=0.5 * version)
            engine.load_weights(WeightSnapshot(version=WeightVersion(version), tensors=tensors))
            for _ in range(2):  # the second finds its prompt in the cache
                (reply,) = engine.submit(ask(PROMPT)).result(60)
                wanted = teacher_forced(module, PROMPT, reply.token_ids)
                assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
                assert reply.weight_version == engine.version == version
    finally:
        engine.close()


def test_a_snapshot_of_another_model_changes_nothing(engine, tied, ask) -> None:
    _, tensors = changed(tied, factor=0.5)
    tensors.pop("model.norm.weight")
    before = engine.submit(ask()).result(60)
    with pytest.raises(ModelError, match=r"lacks the weight 'model\.norm\.weight'"):
        engine.load_weights(
            WeightSnapshot(version=WeightVersion(engine.version + 1), tensors=tensors)
        )
    assert engine.submit(ask()).result(60) == before


def test_an_output_layer_that_keeps_old_weights_is_found_out(folder, ask, monkeypatch) -> None:
    monkeypatch.setattr(weights, "repack_output", lambda model: None)  # vLLM alone
    path = folder()
    engine = VLLMEngine(model_path=str(path), max_model_len=64)
    _, tensors = changed(path, factor=0.5)
    try:
        with pytest.raises(ModelError, match="the output layer of this tied model is not its"):
            engine.load_weights(WeightSnapshot(version=WeightVersion(1), tensors=tensors))
        assert engine.version == 0
        with pytest.raises(ModelError, match="may hold a part of them"):
            engine.submit(ask())
    finally:
        engine.close()


def test_weights_wait_for_what_runs_and_later_requests_for_them(engine, tied, ask) -> None:
    _, tensors = changed(tied, factor=0.0)
    before = engine.submit(ask(max_new_tokens=100, ignore_eos=True))
    while not engine._stepping.num_open:  # it has not begun
        time.sleep(0.001)
    engine.load_weights(WeightSnapshot(version=WeightVersion(4), tensors=tensors))
    assert before.done()
    after = engine.submit(ask())

    assert before.result(0)[0].weight_version < 4
    assert after.result(60)[0].weight_version == 4


def test_a_closed_engine_refuses(folder, ask) -> None:
    engine = VLLMEngine(model_path=str(folder()), max_model_len=64)
    engine.close()
    engine.close()
    with pytest.raises(ModelError, match="closed"):
        engine.submit(ask())
