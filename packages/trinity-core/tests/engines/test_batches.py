"""What is computed once, what is not computed at all, and what may not change a sample."""

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.engines.batch import slots_after
from trinity.engines.forward import _columns


@pytest.fixture
def watched(tiny):
    """Return a model and the shapes of ids that it was called with."""
    model = AutoModelForCausalLM.from_pretrained(tiny)
    shapes = []
    model.register_forward_pre_hook(
        lambda _module, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    return model, shapes


def test_the_samples_of_a_request_share_one_prefill(tiny, watched, start, ask, answers):
    model, shapes = watched
    answers(start(tiny, module=model), ask(range(5, 25), n=8, max_new_tokens=4, ignore_eos=True))
    assert shapes == [(1, 20), (8, 1), (8, 1), (8, 1)]


def test_requests_with_one_prompt_share_its_prefill(tiny, watched, start, ask, answers):
    model, shapes = watched
    requests = [ask(range(5, 25), run=i, max_new_tokens=2, ignore_eos=True) for i in range(4)]
    answers(start(tiny, module=model), *requests)
    assert shapes == [(1, 20), (4, 1)]


def test_a_row_that_ended_is_not_computed_on(tiny, watched, start, ask, answers):
    model, shapes = watched
    requests = [ask(task=i, max_new_tokens=2 + i, ignore_eos=True) for i in range(4)]
    answers(start(tiny, module=model), *requests)
    assert shapes == [(1, 3), (4, 1), (3, 1), (2, 1), (1, 1)]


def test_the_batch_does_not_change_a_sample(tiny, start, ask, answers):
    requests = [ask(range(5, 7 + i), task=i, n=3, temperature=0.9, top_k=50) for i in range(6)]
    engine = start(tiny)
    together = answers(engine, *requests)
    for request, expected in zip(requests, together, strict=True):
        [alone] = answers(engine, request)
        assert [c.token_ids for c in alone] == [c.token_ids for c in expected]


def test_one_seed_gives_one_result(tiny, start, ask, answers):
    requests = [ask(range(5, 7 + i), task=i, n=3) for i in range(4)]
    first, again = (answers(start(tiny, seed=3), *requests) for _ in range(2))
    assert first == again
    other = answers(start(tiny, seed=4), *requests)
    assert first != other


def test_each_sample_run_and_attempt_draws_its_own_numbers(tiny, start, ask, answers):
    engine = start(tiny)
    [[one, two]] = answers(engine, ask(n=2, ignore_eos=True))
    [[other_run]] = answers(engine, ask(run=1, ignore_eos=True))
    assert len({one.token_ids, two.token_ids, other_run.token_ids}) == 3


def test_cut_batches_give_the_same_samples(tiny, start, ask, answers):
    requests = [ask(range(5, 7 + i), task=i, n=3) for i in range(4)]
    whole = answers(start(tiny), *requests)
    cut = answers(start(tiny, max_batch_rows=2), *requests)
    assert [[c.token_ids for c in cs] for cs in cut] == [[c.token_ids for c in cs] for cs in whole]


def test_long_replies_outgrow_the_first_buffers(tiny, start, ask, answers, teacher_forced):
    requests = [ask(range(5, 7 + i), task=i, max_new_tokens=200, ignore_eos=True) for i in range(3)]
    requests.append(ask(range(5, 60), task=9, max_new_tokens=5, ignore_eos=True))
    replies = answers(start(tiny, max_model_len=512), *requests)
    for request, [completion] in zip(requests, replies, strict=True):
        assert len(completion.token_ids) == request.max_new_tokens
        expected = teacher_forced(tiny, request, completion)
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=2e-5)


def test_the_last_slots_move_into_the_places_of_ended_ones():
    assert slots_after([True, False, False, True, False]) == [4, 1, 2]
    assert slots_after([True, True]) == []


def test_a_long_prompt_that_ends_early_leaves_eager_attention_in_order(
    tiny, start, ask, answers, teacher_forced
):
    module = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager")
    engine = start(tiny, module=module.eval())
    requests = [ask(range(3, 60), max_new_tokens=1), ask(task=1, ignore_eos=True)]
    _, [short] = answers(engine, *requests)
    expected = teacher_forced(tiny, requests[1], short)
    assert (torch.tensor(short.logprobs) - expected).abs().max() < 1e-5


def test_a_gpu_gets_a_mask_that_begins_where_memory_does():
    """Its kernel reads eight numbers at a time, and from no other place."""
    on_gpu = torch.empty(2, 64, dtype=torch.bfloat16, device="meta")  # as any that is no CPU

    columns = _columns(on_gpu, 3, 19)

    assert (columns.shape, columns.stride(), columns.storage_offset()) == ((2, 16), (16, 1), 0)


def test_on_a_cpu_a_mask_is_not_copied_for_every_token():
    mask = torch.empty(2, 64)

    assert _columns(mask, 3, 19).data_ptr() == mask[:, 3:].data_ptr()
