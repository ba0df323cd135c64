"""Rows join and leave a running batch, and none of them notices."""

import threading
import time
from concurrent.futures import CancelledError

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import RunKey, WeightSnapshot, WeightVersion
from trinity.engines.slot_cache import SlotCache
from trinity.errors import ModelError


@pytest.fixture
def paced(tiny):
    """Return a model whose forwards can be held, and the shapes of ids that it saw."""

    class Paced:
        def __init__(self):
            self.module = AutoModelForCausalLM.from_pretrained(tiny)
            self.shapes = []
            self.turns = threading.Semaphore(0)
            self.is_free = False
            self.module.register_forward_pre_hook(self._wait, with_kwargs=True)

        def _wait(self, _module, _args, kwargs):
            self.shapes.append(tuple(kwargs["input_ids"].shape))
            if not self.is_free:
                assert self.turns.acquire(timeout=30)

        def turn(self, count=1):
            """Let some forwards pass and wait until the next one is at the door."""
            seen = len(self.shapes)
            self.turns.release(count)
            until(lambda: len(self.shapes) > seen + count - 1)

        def release(self):
            self.is_free = True
            self.turns.release(1000)

    held = Paced()
    yield held
    held.release()


def until(is_true):
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_request_joins_between_two_steps_and_leaves_alone(paced, tiny, start, ask):
    engine = start(tiny, module=paced.module)
    first = engine.submit(ask(max_new_tokens=6, ignore_eos=True))
    until(lambda: paced.shapes == [(1, 3)])
    paced.turn()  # the prefill
    second = engine.submit(ask(range(5, 9), task=1, max_new_tokens=2, ignore_eos=True))
    paced.release()
    assert len(second.result(60)[0].token_ids) == 2
    assert len(first.result(60)[0].token_ids) == 6
    assert paced.shapes == [(1, 3), (1, 1), (1, 4), (2, 1), (1, 1), (1, 1), (1, 1)]


def test_who_joins_and_leaves_changes_nobodys_sample(tiny, start, ask, teacher_forced):
    """Forty requests of all lengths through five slots, each compared with itself alone."""
    requests = [
        ask(range(5, 6 + (7 * i) % 23), task=i, max_new_tokens=3 + (11 * i) % 40, ignore_eos=True)
        for i in range(40)
    ]
    engine = start(tiny, max_batch_rows=5)
    replies = [future.result(60) for future in [engine.submit(r) for r in requests]]
    for request, [reply] in zip(requests, replies, strict=True):
        assert len(reply.token_ids) == request.max_new_tokens
        expected = teacher_forced(tiny, request, reply)
        assert reply.logprobs == pytest.approx(expected.tolist(), abs=2e-5)
    alone = [start(tiny).submit(requests[i]).result(60) for i in (3, 17, 39)]
    assert [r[0].token_ids for r in alone] == [replies[i][0].token_ids for i in (3, 17, 39)]


def test_a_long_prompt_joins_short_rows(paced, tiny, start, ask, teacher_forced):
    engine = start(tiny, module=paced.module)
    short = ask(max_new_tokens=30, ignore_eos=True)
    future = engine.submit(short)
    until(lambda: paced.shapes)
    paced.turn(2)
    long = ask(range(5, 75), task=1, max_new_tokens=4, ignore_eos=True)
    other = engine.submit(long)
    paced.release()
    for request, reply in ((long, other.result(60)[0]), (short, future.result(60)[0])):
        expected = teacher_forced(tiny, request, reply)
        assert reply.logprobs == pytest.approx(expected.tolist(), abs=2e-5)


def test_first_requests_beyond_the_slots_join_in_the_order_of_keys(paced, tiny, start, ask):
    paced.is_free = True
    engine = start(tiny, module=paced.module, max_batch_rows=2, gate_patience_s=30.0)
    for run in range(4):
        engine.run_began(RunKey(run=run))
    order = []
    futures = []
    for run in (3, 1, 2, 0):
        request = ask(run=run, max_new_tokens=4 if run == 0 else 8, ignore_eos=True)
        futures.append(engine.submit(request))
        futures[-1].add_done_callback(lambda _, run=run: order.append(run))
    for future in futures:
        future.result(60)
    assert order == [0, 1, 2, 3]
    batches = [rows for rows, width in paced.shapes if width == 1]
    # a slot is free for one step; the last one goes on alone
    assert batches == [2, 2, 2, 1] + [2, 2, 2, 1] + [2, 2, 2] + [1] * 4


def test_new_weights_wait_for_what_runs_and_later_requests_wait_for_them(paced, tiny, start, ask):
    engine = start(tiny, module=paced.module)
    before = engine.submit(ask(max_new_tokens=4, ignore_eos=True))
    until(lambda: paced.shapes)
    loading = threading.Thread(
        target=engine.load_weights,
        args=(WeightSnapshot(version=WeightVersion(5), tensors={}),),
    )
    loading.start()
    until(lambda: engine._gate.has_jobs)
    after = engine.submit(ask(task=1, max_new_tokens=4, ignore_eos=True))
    paced.release()
    loading.join(60)
    assert before.result(60)[0].weight_version == 0
    assert after.result(60)[0].weight_version == 5
    assert [rows for rows, _ in paced.shapes] == [1] * 8  # never together


def test_a_request_that_is_given_up_leaves_at_once(paced, tiny, start, ask):
    engine = start(tiny, module=paced.module)
    future = engine.submit(ask(max_new_tokens=100, n=2, ignore_eos=True))
    other = engine.submit(ask(task=1, max_new_tokens=5, ignore_eos=True))
    until(lambda: paced.shapes == [(1, 3)])
    paced.turn(2)
    assert future.cancel()
    assert not other.done()
    paced.release()
    assert len(other.result(60)[0].token_ids) == 5
    with pytest.raises(CancelledError):
        future.result(0)
    assert paced.shapes[1:] == [(3, 1), (3, 1), (1, 1), (1, 1)]
    assert not other.cancel()
    assert engine.num_open == 0


def test_every_request_that_is_given_up_frees_its_place(paced, tiny, start, ask):
    """One is being continued, one waits for a slot, one for the others of its step."""
    engine = start(tiny, module=paced.module, max_batch_rows=1, gate_patience_s=30.0)
    runs = engine.submit(ask(run=1, request=1, max_new_tokens=100, ignore_eos=True))
    until(lambda: paced.shapes == [(1, 3)])
    queued = engine.submit(ask(run=2, request=1))
    engine.run_began(RunKey(run=3))
    engine.run_began(RunKey(run=4))
    waits = engine.submit(ask(run=3))
    assert engine.num_open == 3

    assert [future.cancel() for future in (runs, queued, waits)] == [True] * 3
    paced.release()

    until(lambda: engine.num_open == 0)
    engine.run_ended(RunKey(run=4))
    engine.run_ended(RunKey(run=3))
    assert engine.submit(ask(run=5)).result(60)


def test_a_prompt_that_fails_takes_nobody_along(tiny, start, ask):
    module = AutoModelForCausalLM.from_pretrained(tiny)

    def fail_on_long(_module, _args, kwargs):
        if kwargs["input_ids"].shape[1] > 10:
            raise RuntimeError("out of memory")

    module.register_forward_pre_hook(fail_on_long, with_kwargs=True)
    engine = start(tiny, module=module)
    good, bad = engine.submit(ask(task=0)), engine.submit(ask(range(5, 25), task=1))
    assert len(good.result(60)) == 1
    with pytest.raises(ModelError, match="RuntimeError: out of memory"):
        bad.result(60)


def test_a_sample_that_is_nan_fails_its_request_only(tiny, start, ask, teacher_forced):
    module = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.no_grad():
        module.model.embed_tokens.weight[300] = torch.nan  # tied: logit 300 of every row is NaN
    untied = AutoModelForCausalLM.from_pretrained(tiny)
    module.lm_head.weight = untied.lm_head.weight
    engine = start(tiny, module=module.eval())
    good = ask(max_new_tokens=20, ignore_eos=True)
    bad = engine.submit(ask((5, 300, 6), task=1, max_new_tokens=4, ignore_eos=True))
    reply = engine.submit(good).result(60)[0]
    later = engine.submit(ask((7, 8, 9), task=2)).result(60)[0]
    with pytest.raises(ModelError, match="NaN"):
        bad.result(60)
    if 300 not in reply.token_ids:
        expected = teacher_forced(tiny, good, reply)
        assert reply.logprobs == pytest.approx(expected.tolist(), abs=2e-5)
    assert later.logprobs[0] <= 0


def test_a_failing_step_fails_the_rows_in_it_and_the_engine_goes_on(tiny, start, ask):
    module = AutoModelForCausalLM.from_pretrained(tiny)
    steps = []

    def fail_once(_module, _args, kwargs):
        steps.append(kwargs["input_ids"].shape)
        if len(steps) == 3:
            raise RuntimeError("once")

    module.register_forward_pre_hook(fail_once, with_kwargs=True)
    engine = start(tiny, module=module, max_batch_rows=1)
    one, two = (engine.submit(ask(task=i, max_new_tokens=8, ignore_eos=True)) for i in range(2))
    with pytest.raises(ModelError, match="once"):
        one.result(60)
    assert len(two.result(60)[0].token_ids) == 8


def test_rows_do_not_go_on_over_slots_that_were_half_changed(
    paced, tiny, start, ask, teacher_forced, monkeypatch
):
    engine = start(tiny, module=paced.module)
    short = ask(max_new_tokens=8, ignore_eos=True)
    first = engine.submit(short)
    until(lambda: paced.shapes)
    paced.turn(2)

    def fail(*_args):
        monkeypatch.undo()
        raise RuntimeError("out of memory")

    monkeypatch.setattr(SlotCache, "append", fail)
    second = engine.submit(ask(range(5, 75), task=1, max_new_tokens=4))
    paced.release()
    for future in (first, second):
        with pytest.raises(ModelError, match="out of memory"):
            future.result(60)
    reply = engine.submit(short).result(60)[0]
    assert reply.logprobs == pytest.approx(teacher_forced(tiny, short, reply).tolist(), abs=2e-5)


def test_an_engine_whose_thread_died_refuses_instead_of_waiting(tiny, start, ask, monkeypatch):
    engine = start(tiny)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(engine._forwards, "in_use", lambda: None)
    with pytest.raises(ModelError, match="closed before it answered"):
        engine.submit(ask()).result(60)
    until(lambda: not engine._worker.is_alive())
    with pytest.raises(ModelError, match="is closed"):
        engine.submit(ask())


def test_the_model_is_as_it_was_when_the_last_answer_comes(tiny, start, ask):
    module = AutoModelForCausalLM.from_pretrained(tiny).train()
    engine = start(tiny, module=module)
    seen = []
    future = engine.submit(ask())
    future.add_done_callback(
        lambda _: seen.append(
            (module.training, module.config._attn_implementation, "lm_head" in module.__dict__)
        )
    )
    future.result(60)
    until(lambda: seen)
    assert seen == [(True, "sdpa", False)]
