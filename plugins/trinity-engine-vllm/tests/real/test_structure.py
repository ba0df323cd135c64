"""Replies that are held to a structure by the real vLLM; run by ``nox -s vllm``."""

import json
import re

import pytest
from transformers import AutoTokenizer
from trinity.common.ports import Structure
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError
from trinity_engine_vllm import structure as held
from trinity_engine_vllm.engine import VLLMEngine

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
LETTERS = Structure(kind="regex", text="[ab]{3}c")
ENDS = {0, 2}
PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def said(tied):
    tokenizer = AutoTokenizer.from_pretrained(tied)
    return lambda reply: tokenizer.decode(reply.token_ids, skip_special_tokens=True)


@pytest.fixture(autouse=True)
def nothing_is_kept():
    yield
    assert held._in_process == {}


def test_every_reply_is_json_of_the_schema(engine, ask, said) -> None:
    structure = Structure(kind="json_schema", text=json.dumps(SCHEMA))
    replies = engine.submit(ask(n=8, max_new_tokens=100, structure=structure)).result(60)

    ended = [reply for reply in replies if reply.finish_reason == "stop"]
    assert len(ended) > 4
    for reply in ended:
        value = json.loads(said(reply))
        assert value["city"] in {"Paris", "Rome"}
        assert isinstance(value["days"], int)


@pytest.mark.parametrize(
    "structure",
    [LETTERS, Structure(kind="lark", text='start: LETTER LETTER LETTER "c"\nLETTER: /[ab]/')],
    ids=lambda structure: structure.kind,
)
def test_the_end_comes_where_the_structure_ends(engine, ask, said, structure) -> None:
    replies = engine.submit(ask(n=8, structure=structure, min_new_tokens=9)).result(60)
    others = engine.submit(ask(n=8, structure=structure, ignore_eos=True)).result(60)

    for reply in (*replies, *others):
        assert re.fullmatch("[ab]{3}c", said(reply))
        assert reply.finish_reason == "stop"
        assert len(reply.logprobs) == len(reply.token_ids)
    assert {reply.token_ids[-1] for reply in (*replies, *others)} <= ENDS
    assert len({reply.token_ids for reply in replies}) > 1


@pytest.mark.parametrize("ignores", [False, True])
def test_a_reply_without_room_for_the_end_token_is_cut(engine, ask, ignores) -> None:
    structure = Structure(kind="regex", text="abc")
    (reply,) = engine.submit(ask(structure=structure, ignore_eos=ignores)).result(60)
    num = len(reply.token_ids) - 1
    assert reply.token_ids[-1] in ENDS

    (cut,) = engine.submit(ask(structure=structure, ignore_eos=ignores, max_new_tokens=num)).result(
        60
    )

    assert (len(cut.token_ids), cut.finish_reason) == (num, "length")


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_log_probabilities_are_those_before_the_structure_beside_replies_that_are_free(
    engine, tied, ask, said, teacher_forced, temperature
) -> None:
    free = ask(task=1, n=3, max_new_tokens=20)
    (alone,) = [engine.submit(free).result(60)]
    structure = Structure(kind="regex", text="[a-f]{12}")
    held_one = engine.submit(ask(n=3, structure=structure, temperature=temperature))
    beside = engine.submit(free).result(60)

    assert [reply.token_ids for reply in beside] == [reply.token_ids for reply in alone]
    for reply in held_one.result(60):
        assert re.fullmatch("[a-f]{12}", said(reply))
        wanted = teacher_forced(tied, PROMPT, reply.token_ids, temperature=temperature or 1.0)
        assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
        assert min(reply.logprobs) < -2  # the structure took what was unlikely


def test_an_engine_that_cuts_what_is_sampled_tells_those_before_both(
    tied, ask, said, teacher_forced
) -> None:
    engine = VLLMEngine(model_path=str(tied), max_model_len=64, top_k=3)
    structure = Structure(kind="regex", text="[a-f]{6}")
    try:
        replies = engine.submit(ask(n=3, top_k=3, structure=structure)).result(60)
        for reply in replies:
            assert re.fullmatch("[a-f]{6}", said(reply))
            wanted = teacher_forced(tied, PROMPT, reply.token_ids)
            assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
    finally:
        engine.close()


def test_greedy_says_what_the_embedded_engine_says(engine, tied, ask) -> None:
    embedded = TransformersEngine(model_path=str(tied), max_model_len=128, device="cpu")
    try:
        for text in ("(yes|no)!", "[a-z]{3,9}", "[0-9]+(,[0-9]+){2}"):
            request = ask(structure=Structure(kind="regex", text=text), temperature=0.0, n=2)
            wanted = embedded.submit(request).result(60)
            given = engine.submit(request).result(60)
            assert [reply.token_ids for reply in given] == [reply.token_ids for reply in wanted]
            assert given[0].finish_reason == wanted[0].finish_reason
            assert list(given[0].logprobs) == pytest.approx(list(wanted[0].logprobs), abs=1e-4)
    finally:
        embedded.close()


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("json_schema", '{"type": "nonsense"}', "Invalid type: nonsense"),
        ("json_schema", "{", "is no json_schema"),
        ("regex", "(", "unclosed group"),
        ("lark", "start: nope", 'unknown name: "nope"'),
        ("xml", "<a/>", "structure.kind is 'xml'; use one of json_schema, regex, lark"),
    ],
)
def test_a_bad_structure_is_refused_when_it_is_asked_for(engine, ask, kind, text, reason) -> None:
    with pytest.raises(ModelError, match=re.escape(reason)):
        engine.submit(ask(structure=Structure(kind=kind, text=text)))
    assert engine.num_open == 0


def test_a_held_reply_that_is_given_up_is_forgotten(engine, ask) -> None:
    endless = Structure(kind="regex", text="[ab]*")
    given_up = engine.submit(ask(structure=endless, max_new_tokens=120, ignore_eos=True))
    assert given_up.cancel()
    assert len(engine.submit(ask(structure=LETTERS)).result(60)) == 1
