"""What cannot be done is refused by its name; nothing is ignored."""

from __future__ import annotations

import pytest

NAME = "Qwen/Tiny"
TOKENS = [71, 104, 101, 32, 113]


def a_datum(**fields):
    return {
        "tokens": TOKENS[:-1],
        "target_tokens": TOKENS[1:],
        "weights": [1.0] * 4,
        **fields,
    }


@pytest.mark.parametrize(
    ("lora", "told"),
    [
        ({"rank": 0}, "lora_config.rank is 0"),
        ({"alpha": 8}, "'alpha' is not known"),
        ({"train_unembed": False, "train_mlp": False, "train_attn": False}, "no layer"),
    ],
)
def test_an_adapter_that_cannot_be_made_is_refused(client, lora, told):
    assert told in client.error(client.create(client.session(), **lora))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"base_model": "no/such"}, "no/such"),
        ({"optimizer_config": {"type": "dimuon", "version": 1}}, "dimuon"),
        ({"colour": "red"}, "'colour'"),
    ],
)
def test_a_run_that_cannot_be_made_is_refused_and_so_is_what_follows(client, fields, told):
    session = client.session()
    lora = {"rank": 4, "seed": 1}
    body = {"session_id": session, "model_seq_id": 0, "base_model": NAME, "lora_config": lora}
    refused = client.post("/create_model", {**body, **fields})["request_id"]

    assert told in client.error(refused)
    later = client.backward(f"{session}:train:0", 1, [a_datum()])
    assert "was not made" in client.error(later)


@pytest.mark.parametrize(
    ("how", "fields", "told"),
    [
        ({"loss": "gspo"}, {}, "'gspo'"),
        ({"loss": "stable_reinforce"}, {}, "'stable_reinforce'"),
        ({"loss": "custom"}, {}, "forward_backward_custom"),
        ({"loss": "grpo"}, {}, "no loss 'grpo'"),
        ({"config": {"beta": 1.0}}, {}, "no setting 'beta'"),
        ({}, {"mask": [1.0] * 4}, "no input 'mask'"),
        ({"loss": "ppo"}, {}, "no input 'weights'"),
        ({}, {"weights": [1.0] * 3}, "'weights' has the shape [3]"),
        ({}, {"tokens": TOKENS}, "5 tokens and 4 rows"),
        ({}, {"target_tokens": [1, 2, 3, 999_999]}, "a token outside of 0 to 383"),
        ({}, {"tokens": [], "target_tokens": [], "weights": []}, "0 tokens"),
        ({}, {"weights": [1.0, float("nan"), 1.0, 1.0]}, "datum 0: 'weights' is nan at position 1"),
        ({}, {"weights": [1.0, 1.0, 1.0, float("inf")]}, "datum 0: 'weights' is inf at position 3"),
        ({}, {"weights": [3e38] * 4}, "the loss is inf"),
    ],
)
def test_a_pass_that_cannot_be_made_is_refused_and_the_run_goes_on(client, how, fields, told):
    model = client.model(client.session())
    assert told in client.error(client.backward(model, 1, [a_datum(**fields)], **how))

    client.output(client.backward(model, 2, [a_datum()]))
    client.wait(client.step(model, 3))


def test_a_text_above_the_context_is_refused(client):
    model = client.model(client.session())
    datum = {"tokens": [1] * 2049, "target_tokens": [1] * 2049, "weights": [1.0] * 2049}

    assert "the context of the model is 2048" in client.error(client.backward(model, 1, [datum]))


def test_an_image_is_refused(client):
    from trinity_tinker.wire import message

    model = client.model(client.session())
    request = message("ForwardBackwardRequest")
    request.model_id, request.seq_id, request.loss_fn = model, 1, "cross_entropy"
    datum = request.data.add()
    datum.model_input.add().image.data = b"x"
    datum.loss_fn_inputs["target_tokens"].shape.append(0)
    answer = client.http.post("/forward_backward", content=request.SerializeToString())

    assert "chunk of image" in client.error(answer.json()["request_id"])


@pytest.mark.parametrize(
    ("adam", "told"),
    [
        ({}, "there are none since the last one"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"learning_rate": None}, "learning_rate is null, which the SDK sends for NaN"),
        ({"eps": None}, "eps is null"),
        ({"beta1": 1.0}, "beta1 and beta2"),
        ({"momentum": 0.9}, "'momentum'"),
    ],
)
def test_a_step_that_cannot_be_made_is_refused(client, adam, told):
    model = client.model(client.session())

    assert told in client.error(client.step(model, 1, **adam))


def test_another_optimizer_is_refused(client):
    model = client.model(client.session())
    params = {"type": "dimuon", "learning_rate": 1e-3}
    body = {"model_id": model, "seq_id": 1, "optimizer_params": params}

    assert "dimuon" in client.error(client.post("/optim_step", body)["request_id"])


@pytest.mark.parametrize(
    ("path", "fields", "told"),
    [
        ("/save_weights", {"path": "a/b"}, "'a/b'"),
        ("/save_weights", {"path": "a", "ttl_seconds": 60}, "ttl_seconds is 60"),
        ("/save_weights_for_sampler", {"path": "a", "kind": "inflight"}, "takes no path"),
        ("/save_weights_for_sampler", {"path": "a", "kind": "other"}, "'other'"),
        (
            "/save_weights_for_sampler",
            {"sampling_session_seq_id": 0, "kind": "inflight", "ttl_seconds": 3600},
            "no ttl_seconds",
        ),
        ("/save_weights_for_sampler", {}, "needs path"),
        ("/load_weights", {"path": "tinker://x/weights/y", "optimizer": True}, "no checkpoint"),
        (
            "/load_weights",
            {"path": "tinker://x/weights/y", "optimizer": True, "weights_access_token": "t"},
            "weights_access_token",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_made_or_loaded_is_refused(client, path, fields, told):
    model = client.model(client.session())
    request = client.post(path, {"model_id": model, "seq_id": 1, **fields})["request_id"]

    assert told in client.error(request)


def test_a_checkpoint_is_not_written_over_unless_asked(client):
    model = client.model(client.session())
    requests = [
        client.post("/save_weights", {"model_id": model, "seq_id": seq, "path": "a", **fields})
        for seq, fields in ((1, {}), (2, {}), (3, {"overwrite": True}))
    ]
    client.wait(requests[0]["request_id"])

    assert "exists" in client.error(requests[1]["request_id"])
    client.wait(requests[2]["request_id"])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"record_stability_info": True}, "record_stability_info"),
        ({"prompt_alt_tokens_k": 2}, "prompt_alt_tokens_k"),
        ({"prompt_logprobs": True, "prompt_logprobs_last_n": 5}, "prompt_logprobs_last_n is 5"),
        ({"prompt_logprobs_last_n": 1}, "needs prompt_logprobs"),
        ({"target_prompt_logprobs": {"data": [1], "shape": [1, 1]}}, "has a row for each token"),
        ({"params": {"min_p": 0.1}}, "'min_p'"),
        ({"params": {"temperature": -1.0}}, "temperature is -1.0"),
        ({"num_samples": 0}, "num_samples is 0"),
        ({"prompt": {"chunks": [{"type": "image", "data": ""}]}}, "a chunk of image"),
    ],
)
def test_a_sample_that_cannot_be_made_is_refused(client, fields, told):
    body = {"session_id": client.session(), "sampling_session_seq_id": 0, "base_model": NAME}
    session = client.post("/create_sampling_session", body)["sampling_session_id"]

    assert told in client.error(client.sample(session, 1, TOKENS, **fields))


def test_a_field_of_a_sample_that_is_not_known_is_refused(client):
    body = {"session_id": client.session(), "sampling_session_seq_id": 0, "base_model": NAME}
    session = client.post("/create_sampling_session", body)["sampling_session_id"]
    body = {"sampling_session_id": session, "seq_id": 1, "prompt": {}, "sampling_params": {}}

    assert "'colour'" in client.post("/asample", {**body, "colour": 1}, status=422)["detail"]


@pytest.mark.parametrize("of", [{"base_model": "no/such"}, {}])
def test_a_sampling_session_of_an_unknown_model_is_refused(client, of):
    body = {"session_id": client.session(), "sampling_session_seq_id": 0, **of}

    assert "not served here" in client.post("/create_sampling_session", body, status=422)["detail"]


def test_what_is_not_there_is_not_found(client):
    assert client.post("/retrieve_future", {"request_id": "x"}, status=404)
    assert client.post("/get_info", {"model_id": "x"}, status=404)
    assert client.post("/session_heartbeat", {"session_id": "x"}, status=404)
