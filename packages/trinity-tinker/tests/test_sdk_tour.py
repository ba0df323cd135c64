"""The published SDK, unmodified, trains, saves, loads and samples."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

tinker = pytest.importorskip("tinker", reason="pip install 'trinity-tinker[sdk]'")

pytestmark = pytest.mark.sdk

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"


@pytest.fixture
def service(server, models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(models)  # where transformers finds the tokenizer by the model's name
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    return tinker.ServiceClient(base_url=server.base_url, api_key=KEY)


def done(given):
    """Return a client that the SDK creates: 0.38 gives a future of it, 0.36 the client itself."""
    return given.result() if hasattr(given, "result") else given


def a_datum(tokens: list[int], **inputs):
    inputs = inputs or {"weights": [1.0] * (len(tokens) - 1)}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], **inputs},
    )


def test_the_whole_way_from_a_new_run_to_one_that_goes_on(service):
    run = done(service.create_lora_training_client(base_model=NAME, rank=8, seed=1))
    tokens = run.get_tokenizer().encode("the quick brown fox jumps over the lazy dog")
    losses = []
    for _ in range(4):
        passed = run.forward_backward([a_datum(tokens)], "cross_entropy")
        stepped = run.optim_step(tinker.AdamParams(learning_rate=1e-2))
        losses.append(passed.result().metrics["loss:sum"])
        assert stepped.result().metrics["grad_norm"] > 0
    assert losses[3] < losses[0] / 2

    sampler = done(run.save_weights_and_get_sampling_client())
    prompt = tinker.ModelInput.from_ints(tokens[:6])
    params = tinker.SamplingParams(max_tokens=4, temperature=0.0)
    sampled = sampler.sample(prompt, 2, params).result()
    assert [len(one.tokens) for one in sampled.sequences] == [4, 4]
    assert sampled.sequences[0].tokens == sampled.sequences[1].tokens

    scored = sampler.compute_logprobs(tinker.ModelInput.from_ints(tokens)).result()
    passed = run.forward([a_datum(tokens)], "cross_entropy").result()
    assert scored[0] is None
    assert -sum(scored[1:]) == pytest.approx(passed.metrics["loss:sum"], rel=1e-4)

    path = run.save_state("one").result().path
    other = done(service.create_training_client_from_state_with_optimizer(path))
    again = other.forward([a_datum(tokens)], "cross_entropy").result()
    assert again.metrics == passed.metrics
    assert other.get_info().lora_rank == 8


def test_copies_of_a_sampling_client_sample_as_it_does(service):
    sampler = done(service.create_sampling_client(base_model=NAME))
    prompt = tinker.ModelInput.from_ints([71, 104, 101])
    params = tinker.SamplingParams(max_tokens=4, seed=3, stop=[])
    copies = [pickle.loads(pickle.dumps(sampler)) for _ in range(3)]
    found = [one.sample(prompt, 1, params).result() for one in (sampler, *copies)]

    assert len({tuple(one.sequences[0].tokens) for one in found}) == 1


@pytest.mark.skipif(not hasattr(tinker.types, "SamplingClientKind"), reason="an older SDK")
def test_inflight_clients_follow_the_weights_that_are_saved_last(service):
    run = done(service.create_lora_training_client(base_model=NAME, rank=8, seed=1))
    tokens = run.get_tokenizer().encode("the quick brown fox jumps over the lazy dog")
    text = tinker.ModelInput.from_ints(tokens)
    first = done(run.save_weights_and_get_sampling_client(kind="inflight"))
    before = first.compute_logprobs(text).result()
    run.forward_backward([a_datum(tokens)], "cross_entropy")
    run.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
    second = done(run.save_weights_and_get_sampling_client(kind="inflight"))
    after = [one.compute_logprobs(text).result() for one in (first, second)]

    assert sum(after[0][1:]) > sum(before[1:]) + 1
    assert after[0] == after[1]


def test_2600_datums_in_three_requests_add_up(service):
    run = done(service.create_lora_training_client(base_model=NAME, rank=4, seed=1))
    datums = [a_datum([10 + number % 300, 11, 12]) for number in range(2600)]
    output = run.forward_backward(datums, "cross_entropy").result()

    logprobs = [value for one in output.loss_fn_outputs for value in one["logprobs"].data]
    assert len(logprobs) == 5200
    assert output.metrics["loss:sum"] == pytest.approx(-math.fsum(logprobs), rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "config"),
    [
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
        ("cispo", None),
        ("dro", {"beta": 0.1}),
    ],
)
def test_a_loss_on_sampled_tokens_is_computed(service, loss, config):
    run = done(service.create_lora_training_client(base_model=NAME, rank=4, seed=1))
    tokens = [71, 104, 101, 32]
    datum = a_datum(tokens, logprobs=[-6.0, -6.0, -6.0], advantages=[1.0, -1.0, 0.5])
    passed = run.forward_backward([datum], loss, config).result()

    assert math.isfinite(passed.metrics["loss:sum"])
    assert run.optim_step(tinker.AdamParams()).result().metrics["grad_norm"] > 0


def test_ppo_as_a_custom_loss_gives_the_weights_of_ppo(service):
    import torch

    tokens = [71, 104, 101, 32, 113]
    sampled, advantages = [-6.0, -5.0, -7.0, -6.5], [1.0, -1.0, 0.5, 2.0]

    def ppo(data, logprobs_list):
        del data
        (logprob,) = logprobs_list
        advantage = torch.tensor(advantages)
        ratio = (logprob - torch.tensor(sampled)).exp()
        kept = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return -kept.sum(), {}

    losses = []
    for is_custom in (False, True):
        run = done(service.create_lora_training_client(base_model=NAME, rank=4, seed=1))
        for _ in range(3):
            if is_custom:
                run.forward_backward_custom([a_datum(tokens)], ppo).result()
            else:
                datum = a_datum(tokens, logprobs=sampled, advantages=advantages)
                run.forward_backward([datum], "ppo").result()
            run.optim_step(tinker.AdamParams(learning_rate=1e-2, eps=1e-8)).result()
        last = run.forward([a_datum(tokens)], "cross_entropy").result()
        losses.append(last.loss_fn_outputs[0]["logprobs"].data)

    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_refusal_is_the_error_of_its_future_and_the_run_goes_on(service):
    run = done(service.create_lora_training_client(base_model=NAME, rank=4))
    with pytest.raises(tinker.RequestFailedError, match="gspo"):
        run.forward_backward([a_datum([1, 2, 3])], "gspo").result()

    run.forward_backward([a_datum([1, 2, 3])], "cross_entropy").result()
    assert run.optim_step(tinker.AdamParams()).result().metrics["grad_norm"] > 0
