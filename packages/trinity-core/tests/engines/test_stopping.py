"""Where a reply ends."""

import json

import pytest
from trinity_testing.tiny import make_tiny_model

END, PAD = 2, 0  # both end a reply of the tiny model


def test_an_end_token_is_the_last_one_and_says_stop(tiny, start, ask, answers):
    [completions] = answers(start(tiny), ask(n=64, max_new_tokens=60))
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert {c.token_ids[-1] for c in stopped} == {END, PAD}  # all of the generation config's
    assert not any({END, PAD} & set(c.token_ids[:-1]) for c in completions)
    assert all(len(c.token_ids) == 60 for c in completions if c.finish_reason == "length")


def test_ignore_eos_goes_on(tiny, start, ask, answers):
    [completions] = answers(start(tiny), ask(n=64, max_new_tokens=60, ignore_eos=True))
    assert {len(c.token_ids) for c in completions} == {60}
    assert {c.finish_reason for c in completions} == {"length"}
    assert any(END in c.token_ids for c in completions)


def test_min_new_tokens_bars_the_end(tiny, start, ask, answers):
    engine = start(tiny)
    [short] = answers(engine, ask(n=64, max_new_tokens=40))
    assert min(len(c.token_ids) for c in short) < 20
    [long] = answers(engine, ask(n=64, max_new_tokens=40, min_new_tokens=20))
    assert min(len(c.token_ids) for c in long) > 20


def test_the_context_bounds_a_reply(tiny, start, ask, answers):
    [[completion]] = answers(
        start(tiny, max_model_len=16), ask(range(5, 15), max_new_tokens=50, ignore_eos=True)
    )
    assert len(completion.token_ids) == 6
    assert completion.finish_reason == "length"


def test_the_end_token_of_the_config_holds_without_a_generation_config(
    tmp_path, start, ask, answers
):
    path = make_tiny_model(tmp_path)
    (path / "generation_config.json").unlink()
    assert json.loads((path / "config.json").read_text())["eos_token_id"] == END
    [completions] = answers(start(path), ask(n=64, max_new_tokens=60))
    assert {c.token_ids[-1] for c in completions if c.finish_reason == "stop"} == {END}


def test_the_end_token_of_the_tokenizer_holds_without_any_in_the_configs(
    tmp_path, start, ask, answers
):
    path = make_tiny_model(tmp_path)
    (path / "generation_config.json").unlink()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    [completions] = answers(start(path), ask(n=64, max_new_tokens=60))
    assert {c.token_ids[-1] for c in completions if c.finish_reason == "stop"} == {END}


@pytest.mark.parametrize("new", [1, 2])
def test_a_reply_may_be_as_short_as_one_token(new, tiny, start, ask, answers):
    [[completion]] = answers(start(tiny), ask(max_new_tokens=new, ignore_eos=True))
    assert len(completion.token_ids) == len(completion.logprobs) == new
