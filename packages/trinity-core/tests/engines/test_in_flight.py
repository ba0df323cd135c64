"""Weights arrive while replies are under way: these go on, or begin anew, and nothing is mixed."""

import re
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.engines.batch import Batch
from trinity.errors import ModelError
from trinity_testing.tiny import make_tiny_model

STEPS_BEFORE = 5  # tokens that each reply has when the weights come


@pytest.fixture
def held(monkeypatch):
    """Let a batch stop after some steps, until it is told to go on."""
    came, go_on = threading.Event(), threading.Event()
    follow, steps = Batch.follow, []

    def held_follow(self):
        follow(self)
        steps.append(None)
        if len(steps) == STEPS_BEFORE:
            came.set()
            assert go_on.wait(30)

    monkeypatch.setattr(Batch, "follow", held_follow)
    return came, go_on


@pytest.fixture
def paths(tmp_path):
    return [make_tiny_model(tmp_path / str(seed), seed=seed) for seed in (0, 1)]


def snapshot(path, version=7):
    tensors = AutoModelForCausalLM.from_pretrained(path).state_dict()
    return WeightSnapshot(version=WeightVersion(version), tensors=tensors)


def swapped(engine, requests, held, new, *, in_flight):
    """Return the answers of the requests, the weights swapped after some steps of them."""
    came, go_on = held
    futures = [engine.submit(request) for request in requests]
    assert came.wait(30)
    swap = threading.Thread(
        target=engine.swap_weights, args=(new,), kwargs={"in_flight": in_flight}
    )
    swap.start()
    while in_flight != "finish" and not engine._gate.has_urgent:
        pass
    go_on.set()
    answers = [future.result(60) for future in futures]
    swap.join(30)
    return answers


def logprobs_of(path, request, completion):
    """Return what the model of a folder gives each token of a reply, ``[T]``."""
    model = AutoModelForCausalLM.from_pretrained(path)
    prompt = len(request.prompt_token_ids)
    ids = torch.tensor([request.prompt_token_ids + completion.token_ids])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return logprobs.gather(1, ids[0, 1:, None])[prompt - 1 :, 0]


@pytest.mark.parametrize("cpu_kernels", [True, False])
def test_a_reply_that_is_kept_has_each_token_of_the_version_that_it_says(
    cpu_kernels, paths, start, ask, held
):
    old, new = paths
    engine = start(old, cpu_kernels=cpu_kernels)
    requests = [
        ask(range(5, 8 + task), task=task, n=3, max_new_tokens=20, ignore_eos=True)
        for task in range(3)
    ]
    answers = swapped(engine, requests, held, snapshot(new), in_flight="keep")

    replies = [(r, reply) for r, many in zip(requests, answers, strict=True) for reply in many]
    assert len(replies) == 9
    for request, reply in replies:
        assert reply.version_spans == ((0, 0), (STEPS_BEFORE, 7))
        assert reply.weight_version == 0
        assert len(reply.token_ids) == 20
        given = torch.tensor(reply.logprobs)
        before, after = (logprobs_of(path, request, reply) for path in paths)
        torch.testing.assert_close(given[:STEPS_BEFORE], before[:STEPS_BEFORE])
        torch.testing.assert_close(given[STEPS_BEFORE:], after[STEPS_BEFORE:])
        assert (given[STEPS_BEFORE:] - before[STEPS_BEFORE:]).abs().max() > 0.01
    assert engine.version == 7


def test_a_reply_that_begins_anew_is_that_of_an_engine_which_had_the_new_weights(
    paths, start, ask, answers, held
):
    old, new = paths
    requests = [ask(task=task, n=2, ignore_eos=True) for task in range(2)]
    got = swapped(start(old), requests, held, snapshot(new), in_flight="abort")
    other = start(old)
    other.load_weights(snapshot(new))
    assert got == answers(other, *requests)
    assert {(c.weight_version, c.version_spans) for many in got for c in many} == {(7, ())}


def test_a_reply_that_is_finished_is_of_the_old_weights(paths, start, ask, held):
    old, new = paths
    request = ask(ignore_eos=True)
    engine = start(old)
    [[reply]] = swapped(engine, [request], held, snapshot(new), in_flight="finish")
    torch.testing.assert_close(torch.tensor(reply.logprobs), logprobs_of(old, request, reply))
    assert (reply.weight_version, reply.version_spans, engine.version) == (0, (), 7)


def test_a_structure_holds_across_new_weights(paths, start, ask, held):
    pytest.importorskip("llguidance")
    from trinity.common.ports import Structure

    old, new = paths
    request = ask(structure=Structure(kind="regex", text="[ab]{12}"), max_new_tokens=30)
    engine = start(old)
    [[reply]] = swapped(engine, [request], held, snapshot(new), in_flight="keep")
    assert len(reply.version_spans) == 2
    assert re.fullmatch(r"[ab]{12}(<.*>)?", engine._tokenizer.text(reply.token_ids))


def test_one_of_the_replies_of_a_request_may_have_ended_before(paths, start, ask, held):
    old, new = paths
    engine = start(old)
    requests = [ask(task=task, n=8, max_new_tokens=20) for task in range(4)]  # many end early
    answers = swapped(engine, requests, held, snapshot(new), in_flight="keep")
    for request, many in zip(requests, answers, strict=True):
        for reply in many:
            spans = reply.version_spans or ((0, int(reply.weight_version)),)
            for (begin, version), end in zip(
                spans, [*(s for s, _ in spans[1:]), len(reply.token_ids)], strict=True
            ):
                wanted = logprobs_of(new if version else old, request, reply)
                given = torch.tensor(reply.logprobs)
                torch.testing.assert_close(given[begin:end], wanted[begin:end])


def test_weights_of_another_model_leave_the_replies_as_they_were(paths, start, ask, answers, held):
    old, _ = paths
    request = ask(ignore_eos=True)
    engine, other = start(old), start(old)
    bad = WeightSnapshot(version=WeightVersion(7), tensors={"nothing": torch.zeros(1)})
    failures = []

    class Noting:
        _gate = engine._gate
        submit = engine.submit

        def swap_weights(self, snapshot, *, in_flight):
            with pytest.raises(ModelError, match="does not have"):
                engine.swap_weights(snapshot, in_flight=in_flight)
            failures.append("refused")

    [[reply]] = swapped(Noting(), [request], held, bad, in_flight="keep")
    [[wanted]] = answers(other, request)
    assert (reply.token_ids, reply.version_spans) == (wanted.token_ids, ())
    torch.testing.assert_close(torch.tensor(reply.logprobs), torch.tensor(wanted.logprobs))
    assert failures == ["refused"]


def test_an_idle_engine_swaps_at_once(paths, start, ask, answers):
    old, new = paths
    engine = start(old)
    engine.swap_weights(snapshot(new), in_flight="keep")
    [[reply]] = answers(engine, ask())
    assert (reply.weight_version, reply.version_spans) == (7, ())


def test_a_reply_that_is_given_up_meanwhile_does_not_come_back(paths, start, ask, held):
    old, new = paths
    engine = start(old)
    came, go_on = held
    gone, stays = (engine.submit(ask(task=task, ignore_eos=True)) for task in range(2))
    assert came.wait(30)
    swap = threading.Thread(
        target=engine.swap_weights, args=(snapshot(new),), kwargs={"in_flight": "keep"}
    )
    swap.start()
    while not engine._gate.has_urgent:
        pass
    gone.cancel()
    go_on.set()
    swap.join(30)
    [reply] = stays.result(30)
    assert reply.version_spans == ((0, 0), (STEPS_BEFORE, 7))
    assert engine.num_open == 0
