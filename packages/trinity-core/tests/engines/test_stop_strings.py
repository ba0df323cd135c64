"""A reply ends with the token that completes a stop string, or with a stop token."""

import pytest
from transformers import AutoTokenizer
from trinity.engines.rows import completed_stop
from trinity.errors import ModelError
from trinity_testing.engines import ScriptedEngine
from trinity_testing.tiny import make_tiny_tokenizer


@pytest.fixture(scope="module")
def text(tiny):
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def split(said, tokenizer):
    """Return ids that say it, each character apart."""
    return [id for character in said for id in tokenizer.encode(character)]


@pytest.mark.parametrize(
    ("said", "stops", "found"),
    [
        ("thought: go", ["go"], "go"),
        ("go thought: ", ["go"], None),  # it was completed long before
        ("a\nObservation:", ["Observation:", "\nObservation:"], "\nObservation:"),
        ("xb", ["b", "ab"], "b"),
        ("ab", ["b", "ab"], "ab"),
        ("caf\u00e9", ["\u00e9"], "\u00e9"),  # two tokens, the second completes it
        ("caf\u00e9", ["f\u00e9"], "f\u00e9"),
        ("bb", ["b"], "b"),
        ("one two", ["three"], None),
    ],
)
def test_the_match_ends_in_the_text_of_the_last_token(said, stops, found) -> None:
    tokenizer = make_tiny_tokenizer()
    ids = split(said, tokenizer)
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)  # noqa: E731

    assert completed_stop(ids, stops, decode=decode) == found


def test_a_special_token_counts_as_its_text() -> None:
    tokenizer = make_tiny_tokenizer()
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)  # noqa: E731
    ids = tokenizer.encode("a<|im_start|>")

    assert completed_stop(ids, ["<|im_start|>"], decode=decode) == "<|im_start|>"


def test_a_reply_of_the_model_is_cut_where_its_text_first_holds_the_string(
    tiny, start, ask, answers, text
) -> None:
    engine = start(tiny)
    [free] = answers(engine, ask(n=16, max_new_tokens=60, ignore_eos=True))
    stops = [text(reply.token_ids[20:22]) for reply in free]
    for sample, stop in enumerate(stops):
        if "\ufffd" in stop:
            continue
        [cut] = answers(engine, ask(n=16, max_new_tokens=60, ignore_eos=True, stop=(stop,)))
        reply, whole = cut[sample], free[sample].token_ids
        end = next(i for i in range(1, 61) if stop in text(whole[:i]))
        assert reply.token_ids == whole[:end]
        assert reply.logprobs == free[sample].logprobs[:end]
        assert (reply.finish_reason, reply.stop_reason) == ("stop", stop)


def test_a_stop_token_is_kept_and_ends_the_reply_though_eos_is_ignored(
    tiny, start, ask, answers
) -> None:
    engine = start(tiny)
    [[free]] = answers(engine, ask(max_new_tokens=30, ignore_eos=True))
    token = free.token_ids[7]

    [[cut]] = answers(engine, ask(max_new_tokens=30, ignore_eos=True, stop_token_ids=(token,)))

    assert cut.token_ids == free.token_ids[: free.token_ids.index(token) + 1]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", None)


def test_nothing_stops_before_the_least_number_of_tokens(tiny, start, ask, answers, text) -> None:
    engine = start(tiny)
    options = {"max_new_tokens": 40, "ignore_eos": True, "min_new_tokens": 10}
    [[free]] = answers(engine, ask(**options))
    stop = text(free.token_ids[3:5])

    [[cut]] = answers(engine, ask(stop=(stop,), stop_token_ids=free.token_ids[:3], **options))

    assert len(cut.token_ids) >= 10
    assert cut.token_ids == free.token_ids[: len(cut.token_ids)]


@pytest.mark.parametrize("stop", [("",), "abc", (3,)])
def test_a_bad_stop_is_refused_when_it_is_asked_for(tiny, start, ask, stop) -> None:
    with pytest.raises(ModelError, match=r"^stop is .*; it must be a tuple of texts"):
        start(tiny).submit(ask(stop=stop))


def test_a_stop_token_beyond_the_vocabulary_is_refused(tiny, start, ask) -> None:
    with pytest.raises(ModelError, match=r"stop_token_ids is .* the model knows tokens 0 to"):
        start(tiny).submit(ask(stop_token_ids=(9_999,)))


def test_stop_strings_need_a_tokenizer(tiny, tmp_path, start, ask) -> None:
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    with pytest.raises(ModelError, match="the request's stop needs the tokenizer of"):
        start(tmp_path).submit(ask(stop=("a",)))


def test_the_scripted_engine_stops_in_the_same_way(ask) -> None:
    engine = ScriptedEngine("go left. stop. go on", repeat=True)
    (reply,) = engine.submit(ask(stop=("stop",), max_new_tokens=50)).result(0)
    assert engine.tokenizer.decode(reply.token_ids) == "go left. stop"
    assert (reply.finish_reason, reply.stop_reason) == ("stop", "stop")

    full_stop = engine.token_ids(".")
    (reply,) = engine.submit(ask(stop_token_ids=full_stop, max_new_tokens=50)).result(0)
    assert engine.tokenizer.decode(reply.token_ids) == "go left."
    assert (reply.finish_reason, reply.stop_reason) == ("stop", None)

    (reply,) = engine.submit(ask(stop=("nowhere",), max_new_tokens=5)).result(0)
    assert (reply.finish_reason, reply.stop_reason) == ("length", None)


def test_a_held_request_of_the_scripted_engine_can_be_given_up(ask) -> None:
    engine = ScriptedEngine("a", "b")
    engine.hold()
    first, second = engine.submit(ask()), engine.submit(ask(run=1))
    assert engine.num_open == 2

    assert first.cancel()
    assert engine.num_open == 1
    engine.release()

    assert engine.tokenizer.decode(second.result(0)[0].token_ids[:-1]) == "a"
    assert engine.num_open == 0
