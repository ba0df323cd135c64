"""Several runs sample in one batch, and beside one that trains, and none notices the others."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from trinity_tinker.samplers import Samplers
from trinity_tinker.server import TinkerServer

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113, 117, 105, 99, 107]
AS_BATCHING = 3e-5  # as far as the shapes of a batch move a log-probability in the core's tests


def a_datum(number):
    tokens = [10 + (7 * number + place) % 300 for place in range(10)]
    return {"tokens": tokens[:-1], "target_tokens": tokens[1:], "weights": [1.0] * 9}


def trained(client, session, number, *, steps=2, **lora):
    """Return a run that is unlike the others."""
    model = client.model(session, number, **lora)
    for step in range(steps):
        client.backward(model, 2 * step + 1, [a_datum(10 * number + step)])
        client.wait(client.step(model, 2 * step + 2))
    return model


def sampler_of(client, model, seq, number, **how):
    body = {"model_id": model, "seq_id": seq, "sampling_session_seq_id": number, **how}
    saved = client.wait(client.post("/save_weights_for_sampler", body)["request_id"])
    return saved["sampling_session_id"]


def sequences(client, request):
    return [
        (np.frombuffer(one.tokens, "<i4").tolist(), np.frombuffer(one.logprobs, "<f4"))
        for one in client.output(request, "SampleResponse").sequences
    ]


def test_runs_of_three_ranks_and_the_base_model_sample_together_as_each_does_alone(client):
    session = client.session()
    ranks = {0: {"rank": 2}, 1: {"rank": 16}, 2: {"rank": 4, "train_unembed": False}}
    samplers = [
        sampler_of(client, trained(client, session, number, **lora), 5, number)
        for number, lora in ranks.items()
    ]
    body = {"session_id": session, "sampling_session_seq_id": 9, "base_model": NAME}
    samplers.append(client.post("/create_sampling_session", body)["sampling_session_id"])
    asked = [(sampler, seed) for seed in range(3) for sampler in samplers]

    def ask(sampler, seed, seq):
        params = {"seed": seed, "max_tokens": 6 + seed, "stop": []}
        return client.sample(sampler, seq, TOKENS[: 5 + seed], num_samples=2, params=params)

    requests = [ask(*one, 10 + one[1]) for one in asked]
    together = [sequences(client, request) for request in requests]
    alone = [sequences(client, ask(*one, 20 + one[1])) for one in asked]

    for one, other in zip(together, alone, strict=True):
        for (tokens, logprobs), (wanted, expected) in zip(one, other, strict=True):
            assert tokens == wanted
            assert logprobs == pytest.approx(expected, abs=AS_BATCHING)
    first = [tuple(found[0][0]) for found in together[:4]]
    assert len(set(first)) == 4  # each run says something else


@pytest.mark.acceptance
def test_sampling_beside_a_run_that_trains_changes_no_bit_of_either(base, tmp_path, make_client):
    """The frozen base model is all that they share."""
    found = []
    for is_together in (False, True):
        server = TinkerServer([base], tmp_path / str(is_together), keys=[KEY])
        client = make_client(server.base_url)
        session = client.session()
        sampler = sampler_of(client, trained(client, session, 0), 5, 0)
        sampled = []

        def sample(client=client, sampler=sampler, sampled=sampled):
            for seq in range(1, 13):
                params = {"seed": seq, "max_tokens": 8, "stop": []}
                request = client.sample(sampler, seq, TOKENS, num_samples=3, params=params)
                answer = client.output(request, "SampleResponse")
                sampled.append(answer.SerializeToString(deterministic=True))

        beside = threading.Thread(target=sample)
        if is_together:
            beside.start()
        model = trained(client, session, 1, steps=8, rank=8)
        last = client.output(client.backward(model, 17, [a_datum(0)], forward_only=True))
        if not is_together:
            beside.start()
        beside.join()
        found.append((sampled, last.loss_fn_outputs[0].fields["logprobs"].data))
        server.close()

    assert found[0] == found[1]


def likeliest(client, sampler, seq):
    """Return the tokens of a greedy reply."""
    params = {"temperature": 0.0, "max_tokens": 8, "stop": []}
    [(tokens, _)] = sequences(client, client.sample(sampler, seq, TOKENS, params=params))
    return tokens


def test_all_inflight_samplers_of_a_run_get_the_weights_that_are_saved_last(
    base, tmp_path, make_client
):
    server = TinkerServer([base], tmp_path, keys=[KEY])
    client = make_client(server.base_url)
    session = client.session()
    model = trained(client, session, 0)
    first = sampler_of(client, model, 5, 0, kind="inflight")
    before = likeliest(client, first, 1)
    client.backward(model, 6, [a_datum(7)])
    client.wait(client.step(model, 7, learning_rate=0.1))
    unchanged = likeliest(client, first, 2)
    second = sampler_of(client, model, 8, 1, kind="inflight")
    snapshot = sampler_of(client, model, 9, 2)
    found = [likeliest(client, sampler, 3) for sampler in (first, second, snapshot)]
    server.close()

    assert unchanged == before  # training alone publishes nothing
    assert found[0] == found[1] == found[2] != before
    assert [one.name for one in tmp_path.glob("checkpoints/*/sampler_weights/inflight*")] == [
        "inflight@8"
    ]
    server = TinkerServer([base], tmp_path, keys=[KEY])
    assert likeliest(make_client(server.base_url), first, 4) == found[0]
    server.close()


def test_weights_that_are_published_reach_what_is_being_sampled(base, tmp_path, make_client):
    server = TinkerServer([base], tmp_path, keys=[KEY])
    client = make_client(server.base_url)
    model = trained(client, client.session(), 0)
    sampler_of(client, model, 5, 0, kind="inflight")
    (before,) = tmp_path.glob("checkpoints/*/sampler_weights/inflight@*")
    samplers = Samplers(max_adapters=4)
    under_way = samplers.of_checkpoint(before, base, made=1.0)
    old = under_way.scores_of(TOKENS, last=4).own_N
    client.backward(model, 6, [a_datum(7)])
    client.wait(client.step(model, 7))
    sampler_of(client, model, 8, 1, kind="inflight")
    (after,) = tmp_path.glob("checkpoints/*/sampler_weights/inflight@*")
    samplers.publish(after, made=2.0)
    new = under_way.scores_of(TOKENS, last=4).own_N
    server.close()

    assert not np.array_equal(old, new)
    assert samplers.of_checkpoint(after, base, made=2.0) is under_way
    assert samplers.of_checkpoint(before, base, made=1.0) is under_way  # asked for a moment ago
    assert np.array_equal(under_way.scores_of(TOKENS, last=4).own_N, new)
    samplers.close()


def test_a_snapshot_of_the_same_name_is_not_overwritten(client):
    model = trained(client, client.session(), 0)
    body = {"model_id": model, "seq_id": 5, "path": "inflight"}
    client.wait(client.post("/save_weights_for_sampler", body)["request_id"])
    body = {"model_id": model, "seq_id": 6, "sampling_session_seq_id": 0, "kind": "inflight"}

    told = client.error(client.post("/save_weights_for_sampler", body)["request_id"])
    assert "sampler_weights/inflight exists" in told
