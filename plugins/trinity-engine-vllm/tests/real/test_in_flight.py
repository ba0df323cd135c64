"""Weights come while vLLM answers; run by ``nox -s vllm``."""

import re
import threading

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity.common.ports import Structure, WeightSnapshot, WeightVersion
from trinity_engine_vllm import structure as structure_module
from trinity_engine_vllm.engine import VLLMEngine
from trinity_engine_vllm.stepping import Stepping

STEPS_BEFORE = 6
LONG = {"max_new_tokens": 30, "ignore_eos": True}


@pytest.fixture
def swapped(tied, folder, ask, monkeypatch):
    """Return a function: in_flight -> (requests, replies, new model's folder)."""
    new = folder(seed=1)
    came, go_on = threading.Event(), threading.Event()
    step, steps = Stepping.step, []

    def held_step(self):
        step(self)
        if self.num_open:
            steps.append(None)
        if len(steps) == STEPS_BEFORE:
            came.set()
            assert go_on.wait(60)

    made = VLLMEngine(model_path=str(tied), max_model_len=256)
    monkeypatch.setattr(Stepping, "step", held_step)

    def run(in_flight, *, num_prompt_tokens=3, **options):
        tensors = AutoModelForCausalLM.from_pretrained(new).state_dict()
        snapshot = WeightSnapshot(version=WeightVersion(9), tensors=tensors)
        prompts = [range(5, 5 + num_prompt_tokens + i) for i in range(3)]
        requests = [ask(one, task=i, n=3, **LONG | options) for i, one in enumerate(prompts)]
        futures = [made.submit(request) for request in requests]
        assert came.wait(60)
        swap = threading.Thread(
            target=made.swap_weights, args=(snapshot,), kwargs={"in_flight": in_flight}
        )
        swap.start()
        while not (made._worker._urgent or made._worker._jobs):
            pass
        go_on.set()
        replies = [future.result(60) for future in futures]
        swap.join(60)
        assert made.version == 9
        return requests, replies, new

    yield run
    made.close()


def test_replies_go_on_with_the_new_weights_and_say_from_where(
    swapped, tied, teacher_forced
) -> None:
    requests, answers, new = swapped("keep")
    num_mixed = 0
    for request, replies in zip(requests, answers, strict=True):
        assert len(replies) == 3
        for reply in replies:
            assert len(reply.token_ids) == 30
            spans = reply.version_spans or ((0, int(reply.weight_version)),)
            ends = [*(first for first, _ in spans[1:]), 30]
            num_mixed += len(spans) == 2
            for (first, version), end in zip(spans, ends, strict=True):
                model = new if version else tied
                wanted = teacher_forced(model, request.prompt_token_ids, reply.token_ids)
                assert list(reply.logprobs[first:end]) == pytest.approx(wanted[first:end], abs=1e-4)
    assert num_mixed >= 3


@pytest.mark.parametrize("in_flight", ["keep", "abort"])
def test_a_structure_holds_across_new_weights(swapped, tied, teacher_forced, in_flight) -> None:
    structure = Structure(kind="regex", text="([a-f][0-9]){8}")
    requests, answers, new = swapped(in_flight, structure=structure, temperature=0.7)
    tokenizer = AutoTokenizer.from_pretrained(tied)
    num_mixed = 0
    for request, replies in zip(requests, answers, strict=True):
        for reply in replies:
            num = len(reply.token_ids)
            said = tokenizer.decode(reply.token_ids, skip_special_tokens=True)
            assert re.fullmatch("([a-f][0-9]){8}", said)
            spans = reply.version_spans or ((0, int(reply.weight_version)),)
            num_mixed += len(spans) == 2
            ends = [*(first for first, _ in spans[1:]), num]
            for (first, version), end in zip(spans, ends, strict=True):
                model = new if version else tied
                wanted = teacher_forced(
                    model, request.prompt_token_ids, reply.token_ids, temperature=0.7
                )
                assert list(reply.logprobs[first:end]) == pytest.approx(wanted[first:end], abs=1e-4)
    assert (num_mixed >= 3) == (in_flight == "keep")
    assert structure_module._in_process == {}


@pytest.mark.parametrize("num_prompt_tokens", [3, 100])  # 100: three full blocks of the cache
def test_replies_that_begin_anew_are_of_the_new_weights_alone(
    swapped, teacher_forced, num_prompt_tokens
) -> None:
    requests, answers, new = swapped("abort", num_prompt_tokens=num_prompt_tokens)
    for request, replies in zip(requests, answers, strict=True):
        for reply in replies:
            assert (reply.weight_version, reply.version_spans) == (9, ())
            wanted = teacher_forced(new, request.prompt_token_ids, reply.token_ids)
            assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
            assert len(set(reply.token_ids)) > 1


def test_replies_that_finish_are_of_the_old_weights(swapped, tied, teacher_forced) -> None:
    requests, answers, _ = swapped("finish")
    for request, replies in zip(requests, answers, strict=True):
        for reply in replies:
            assert (reply.weight_version, reply.version_spans) == (0, ())
            wanted = teacher_forced(tied, request.prompt_token_ids, reply.token_ids)
            assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
