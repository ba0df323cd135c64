"""Passes and steps that cannot be made, or made again; the run goes on with what it has."""

from __future__ import annotations

TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}


def loss_of(client, model, seq):
    request = client.backward(model, seq, [DATUM], forward_only=True)
    return client.output(request).metrics["loss:sum"]


def test_a_step_that_would_make_a_weight_no_number_is_refused_and_can_be_made_otherwise(client):
    session, losses = client.session(), []
    for number, has_broken in enumerate((False, True)):
        model = client.model(session, number)
        client.output(client.backward(model, 1, [DATUM]))
        if has_broken:
            told = client.error(client.step(model, 2, eps=0.0))
        client.wait(client.step(model, 2 + has_broken))
        losses.append(loss_of(client, model, 3 + has_broken))

    assert "a weight would not be a finite number after this step" in told
    assert losses[0] == losses[1]


def test_a_pass_whose_gradient_overflows_is_refused_and_the_run_goes_on(client):
    model = client.model(client.session())
    before = loss_of(client, model, 1)
    huge = {**DATUM, "weights": [1e25] * 4}  # finite gradients, whose squares are not
    told = client.error(client.backward(model, 2, [huge]))
    refused = client.error(client.step(model, 3))
    client.output(client.backward(model, 4, [DATUM]))
    client.wait(client.step(model, 5))

    assert "the norm of the gradients inf; nothing changed" in told
    assert "there are none since the last one" in refused
    assert loss_of(client, model, 6) < before
