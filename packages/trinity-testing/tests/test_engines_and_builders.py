"""Fakes and builders say what their docstrings say."""

import pytest
from trinity.common.ports import GenerationRequest, WeightSnapshot
from trinity.errors import ModelError
from trinity_testing.builders import a_batch, a_group, a_task, an_experience
from trinity_testing.engines import EchoEngine, ScriptedEngine, script_tokenizer
from trinity_testing.scripted_model import model_over, scripted_model


def ask(engine, *, n=1, max_new_tokens=100, prompt=(5, 6)):
    request = GenerationRequest(prompt_token_ids=prompt, n=n, max_new_tokens=max_new_tokens)
    return engine.submit(request).result(timeout=1)


def test_the_scripted_engine_says_its_answers_in_order_one_a_sample():
    engine = ScriptedEngine("left", "right", "left")

    texts = [script_tokenizer().decode(c.token_ids) for c in [*ask(engine, n=2), *ask(engine)]]

    assert texts == ["left<|im_end|>", "right<|im_end|>", "left<|im_end|>"]


def test_requests_samples_and_prefills_are_counted():
    engine = ScriptedEngine("a", repeat=True)

    ask(engine, n=3)
    ask(engine, n=1)

    assert (engine.num_requests, engine.num_samples, engine.num_prefills) == (2, 4, 2)


def test_an_answer_longer_than_allowed_is_cut_and_says_so():
    (completion,) = ask(ScriptedEngine("abcdef"), max_new_tokens=3)

    assert (len(completion.token_ids), completion.finish_reason) == (3, "length")
    assert len(completion.logprobs) == 3


def test_a_script_that_is_over_is_a_model_error():
    engine = ScriptedEngine("only this")
    ask(engine)

    with pytest.raises(ModelError, match="the script has 1 answers, and one more is asked for"):
        ask(engine)


def test_an_engine_fails_where_it_is_told_to_and_counts_it():
    engine = ScriptedEngine("a", repeat=True, fails_at=1)
    ask(engine)

    with pytest.raises(ModelError):
        ask(engine)
    assert engine.num_failures == 1


def test_a_closed_engine_fails():
    engine = EchoEngine()
    engine.close()

    with pytest.raises(ModelError, match="closed"):
        ask(engine)


def test_completions_carry_the_version_of_the_weights_that_were_loaded():
    engine = ScriptedEngine("a", repeat=True)
    before = ask(engine)[0].weight_version
    engine.load_weights(WeightSnapshot(version=7, tensors={}))

    assert (before, ask(engine)[0].weight_version, engine.version) == (0, 7, 7)


def test_the_tokens_of_an_answer_are_not_those_of_its_text():
    (completion,) = ask(ScriptedEngine("The answer is 46"))

    assert list(completion.token_ids[:-1]) != script_tokenizer().encode("The answer is 46")


def test_the_echo_engine_says_what_the_last_message_says():
    model = model_over(EchoEngine())

    (reply,) = model.chat(
        [{"role": "user", "content": "first"}, {"role": "user", "content": "hi\nyou"}]
    )

    assert reply.response_text == "hi\nyou"


def test_a_scripted_model_gives_the_engines_tokens_and_logprobs():
    engine = ScriptedEngine("46")

    (reply,) = model_over(engine).chat([{"role": "user", "content": "40 + 6?"}])

    (completion,) = engine.exchanges[0].completions
    assert reply.tokens[reply.prompt_length :].tolist() == list(completion.token_ids)
    assert reply.logprobs.tolist() == list(completion.logprobs)


def test_a_scripted_model_takes_its_answers_at_once():
    model = scripted_model("one", "two")

    assert [e.response_text for e in model.chat([{"role": "user", "content": "?"}], n=2)] == [
        "one",
        "two",
    ]


def test_a_conversation_that_goes_on_is_prompted_with_the_scripts_own_tokens():
    engine = ScriptedEngine("The answer is 46", "Sure.")
    model = model_over(engine)
    messages = [{"role": "user", "content": "40 + 6?"}]
    (first,) = model.chat(messages)
    messages += [
        {"role": "assistant", "content": first.response_text},
        {"role": "user", "content": "Sure?"},
    ]

    model.chat(messages)

    prompt = engine.exchanges[1].request.prompt_token_ids
    assert prompt[: len(first.tokens)] == tuple(first.tokens.tolist())


def test_builders_give_equal_things_for_equal_arguments():
    assert an_experience(reward=1.0).to_dict() == an_experience(reward=1.0).to_dict()
    assert a_task("2 * 2?", truth="4") == a_task("2 * 2?", truth="4")


def test_a_group_is_the_runs_of_one_task_of_unequal_length():
    group = a_group([1.0, 0.0, 0.5], task=4)

    assert [exp.eid.uid for exp in group] == ["0/4/0/0", "0/4/1/0", "0/4/2/0"]
    assert [exp.response_length for exp in group] == [2, 3, 4]


def test_a_batch_has_a_group_for_each_tuple_and_rows_for_each_step():
    batch = a_batch(rewards=((1.0, 0.0), (0.5,)), num_steps=2)

    assert batch.groups() == {"0/0": [0, 1, 2, 3], "0/1": [4, 5]}
    assert [exp.eid.step for exp in batch.experiences] == [0, 1, 0, 1, 0, 1]


def test_a_task_holds_its_question_and_its_truth():
    task = a_task("2 * 2?", truth="4")

    assert (task.task_desc, task.truth, task.rollout_args.temperature) == ("2 * 2?", "4", 1.0)
