"""Samples and scores are those of the model, with a run's weights or without."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from trinity_tinker import multi_lora
from trinity_tinker.prompt_scores import scores_of
from trinity_tinker.tensors import Cells

NAME = "Qwen/Tiny"
TOKENS = [71, 104, 101, 32, 113, 117, 105, 99, 107]


def sampling(client, **of):
    session = client.session()
    body = {"session_id": session, "sampling_session_seq_id": 0, "base_model": NAME, **of}
    return client.post("/create_sampling_session", body)["sampling_session_id"]


def response(client, request):
    return client.output(request, "SampleResponse")


def floats(raw):
    return np.frombuffer(raw, dtype="<f4")


@pytest.fixture(scope="module")
def plain(models):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(models / NAME).eval()


def expected_logprobs(plain, tokens):
    """Return ``[L - 1, V]`` of a forward pass of transformers."""
    with torch.no_grad():
        return plain(input_ids=torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)


def test_prompt_log_probabilities_are_those_of_a_forward_pass(client, plain):
    request = client.sample(sampling(client), 1, TOKENS, prompt_logprobs=True)
    found = floats(response(client, request).prompt_logprobs)

    scores = expected_logprobs(plain, TOKENS)
    expected = scores.gather(1, torch.tensor(TOKENS[1:])[:, None])[:, 0].numpy()
    assert np.isnan(found[0])
    assert found[1:] == pytest.approx(expected, abs=1e-5)


def test_only_the_last_tokens_are_scored_if_so_asked(client):
    request = client.sample(
        sampling(client), 1, TOKENS, prompt_logprobs=True, prompt_logprobs_last_n=2
    )
    found = floats(response(client, request).prompt_logprobs)

    assert np.isnan(found).tolist() == [True] * 7 + [False] * 2


def test_the_likeliest_tokens_of_a_prompt_are_told(client, plain):
    request = client.sample(sampling(client), 1, TOKENS, topk_prompt_logprobs=3)
    top = response(client, request).topk_prompt_logprobs

    expected = expected_logprobs(plain, TOKENS).topk(3)
    ids = np.frombuffer(top.token_ids, dtype="<i4").reshape(top.length, top.k)
    assert (top.length, top.k) == (len(TOKENS), 3)
    assert ids[0].tolist() == [0, 0, 0]
    assert ids[1:].tolist() == expected.indices.tolist()
    assert floats(top.logprobs)[:3].tolist() == [-99999.0] * 3
    assert floats(top.logprobs)[3:] == pytest.approx(expected.values.flatten().numpy(), abs=1e-5)


def test_given_tokens_of_a_prompt_are_scored(client, plain):
    targets = [[1, -1]] * (len(TOKENS) - 1)
    asked = {"data": [1, -1] * (len(TOKENS) - 1), "shape": [len(targets), 2], "dtype": "int64"}
    request = client.sample(sampling(client), 1, TOKENS, target_prompt_logprobs=asked)
    found = floats(response(client, request).target_prompt_logprobs.dense).reshape(-1, 2)

    assert found[:, 0] == pytest.approx(expected_logprobs(plain, TOKENS)[:, 1].numpy(), abs=1e-5)
    assert (found[:, 1] == 0).all()


def test_sampled_log_probabilities_are_those_of_a_forward_pass(client, plain):
    request = client.sample(
        sampling(client), 1, TOKENS, num_samples=3, topk_sample_logprobs=2, params={"stop": []}
    )
    sequences = response(client, request).sequences

    assert len(sequences) == 3
    for one in sequences:
        tokens = np.frombuffer(one.tokens, dtype="<i4").tolist()
        scores = expected_logprobs(plain, [*TOKENS, *tokens])[-len(tokens) :]
        expected = scores.gather(1, torch.tensor(tokens)[:, None])[:, 0].numpy()
        top = floats(one.topk_sampled_logprobs.logprobs).reshape(-1, 2)
        assert floats(one.logprobs) == pytest.approx(expected, abs=1e-4)
        assert top == pytest.approx(scores.topk(2).values.numpy(), abs=1e-4)
        assert one.stop_reason == 1  # its length


def test_a_seed_gives_the_same_sample_whoever_asks(client):
    asked = {"params": {"seed": 7, "max_tokens": 8, "stop": []}}
    first, second = sampling(client), sampling(client)
    found = [
        response(client, client.sample(session, seq, TOKENS, **asked)).sequences[0].tokens
        for session, seq in ((first, 1), (first, 2), (second, 1))
    ]
    other = {"params": {"seed": 8, "max_tokens": 8, "stop": []}}
    differs = response(client, client.sample(first, 3, TOKENS, **other)).sequences[0].tokens

    assert found[0] == found[1] == found[2] != differs


def test_a_sample_ends_at_a_stop_token_which_it_keeps(client):
    session = sampling(client)
    greedy = {"params": {"temperature": 0.0, "max_tokens": 6, "stop": []}}
    whole = response(client, client.sample(session, 1, TOKENS, **greedy)).sequences[0]
    tokens = np.frombuffer(whole.tokens, dtype="<i4").tolist()
    stopped = {"params": {"temperature": 0.0, "max_tokens": 6, "stop": [tokens[2]]}}
    short = response(client, client.sample(session, 2, TOKENS, **stopped)).sequences[0]

    end = tokens.index(tokens[2]) + 1
    assert np.frombuffer(short.tokens, dtype="<i4").tolist() == tokens[:end]
    assert short.stop_reason == 0


@pytest.mark.parametrize("switches", [{}, {"train_unembed": False}])
def test_a_run_is_sampled_with_its_weights_as_they_were_saved(client, switches):
    session = client.session()
    model = client.model(session, **switches)
    datum = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 8}
    for seq in (1, 3, 5):
        client.backward(model, seq, [datum])
        client.step(model, seq + 1)
    scored = client.output(client.backward(model, 7, [datum], forward_only=True))
    body = {"model_id": model, "seq_id": 8, "sampling_session_seq_id": 0}
    saved = client.wait(client.post("/save_weights_for_sampler", body)["request_id"])
    client.backward(model, 9, [datum])
    client.wait(client.step(model, 10))
    request = client.sample(saved["sampling_session_id"], 1, TOKENS, prompt_logprobs=True)
    found = floats(response(client, request).prompt_logprobs)

    expected = floats(scored.loss_fn_outputs[0].fields["logprobs"].data)
    assert found[1:] == pytest.approx(expected, abs=1e-4)
    base = client.sample(sampling(client), 1, TOKENS, prompt_logprobs=True)
    untrained = floats(response(client, base).prompt_logprobs)
    assert np.abs(untrained[1:] - expected).max() > 0.1


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_long_text_is_scored_in_pieces_as_in_one(plain, temperature):
    text = [10 + (7 * place) % 300 for place in range(1200)]
    asked_C = np.array([3, -1, 5] * 1199)
    rows_C, columns_C = (part.ravel() for part in np.indices((1199, 3)))
    targets = Cells(values_C=asked_C, rows_C=rows_C, columns_C=columns_C, shape=(1199, 3))
    num_rows = []
    head = plain.get_output_embeddings()
    hook = head.register_forward_hook(lambda *call: num_rows.append(call[2].shape[:-1].numel()))
    found = scores_of(plain, text, last=1199, temperature=temperature, num_top=4, targets=targets)
    hook.remove()

    with torch.no_grad():
        logits = plain(input_ids=torch.tensor([text])).logits[0, :-1]
    expected = (logits / temperature).log_softmax(-1)
    own = expected.gather(1, torch.tensor(text[1:])[:, None])[:, 0].numpy()
    top = expected.topk(4)
    assert found.own_N == pytest.approx(own, abs=1e-5)
    assert found.top_NK == pytest.approx(top.values.numpy(), abs=1e-5)
    chosen = expected.gather(1, torch.from_numpy(found.top_ids_NK).long()).numpy()
    assert chosen == pytest.approx(found.top_NK, abs=1e-5)
    values = found.target_C.reshape(1199, 3)
    assert values[:, [0, 2]] == pytest.approx(expected[:, [3, 5]].numpy(), abs=1e-5)
    assert (values[:, 1] == 0).all()
    assert num_rows == [512, 512, 175]


def test_no_scores_of_a_long_prompt_are_asked_of_the_head_at_once(client, monkeypatch):
    num_rows = []
    whole = multi_lora._AdaptedLinear.forward

    def noting(layer, inputs):
        if layer._name == "lm_head":
            num_rows.append(inputs.shape[:-1].numel())
        return whole(layer, inputs)

    monkeypatch.setattr(multi_lora._AdaptedLinear, "forward", noting)
    text = [10 + (7 * place) % 300 for place in range(1200)]
    how = {"prompt_logprobs": True, "topk_prompt_logprobs": 2, "params": {"max_tokens": 1}}
    found = response(client, client.sample(sampling(client), 1, text, **how))

    assert np.isfinite(floats(found.prompt_logprobs)[1:]).all()
    assert sum(num_rows) >= 1199
    assert max(num_rows) == 512
