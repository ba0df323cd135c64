"""A reply that is held to a structure matches it, and its log-probabilities are the model's own."""

import importlib.util
import json
import re
import sys
import threading

import pytest
from transformers import AutoTokenizer
from trinity.common.ports import RunKey, Structure
from trinity.engines.batch import Batch
from trinity.errors import ModelError

has_llguidance = importlib.util.find_spec("llguidance") is not None
needs_llguidance = pytest.mark.skipif(not has_llguidance, reason="trinity-core[structured]")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return AutoTokenizer.from_pretrained(tiny)


LONG = Structure(kind="regex", text="|".join(f"word{number}" for number in range(900)))


@pytest.fixture
def slow(monkeypatch):
    """Let a long structure take until the event is set; what is said of it stays."""
    import llguidance

    may_end, own, begun = threading.Event(), llguidance.LLMatcher, []
    may_end.begun = begun

    class Slow:
        grammar_from_regex = own.grammar_from_regex
        grammar_from_json_schema = own.grammar_from_json_schema
        grammar_from_lark = own.grammar_from_lark

        def __new__(cls, vocabulary, grammar, **options):
            if len(grammar) > len(LONG.text):
                begun.append(grammar)
                assert may_end.wait(10), "nobody goes on while this is compiled"
            return own(vocabulary, grammar, **options)

    monkeypatch.setattr(llguidance, "LLMatcher", Slow)
    return may_end


@needs_llguidance
def test_every_reply_is_json_of_the_schema(tiny, start, ask, answers, tokenizer) -> None:
    structure = Structure(kind="json_schema", text=json.dumps(SCHEMA))
    [replies] = answers(start(tiny), ask(n=16, max_new_tokens=120, structure=structure))

    ended = [reply for reply in replies if reply.finish_reason == "stop"]
    assert len(ended) > 8
    for reply in ended:
        said = json.loads(tokenizer.decode(reply.token_ids, skip_special_tokens=True))
        assert said["city"] in {"Paris", "Rome"}
        assert isinstance(said["days"], int)


@needs_llguidance
@pytest.mark.parametrize(
    ("kind", "text"),
    [("regex", "[ab]{3}c"), ("lark", 'start: LETTER LETTER LETTER "c"\nLETTER: /[ab]/')],
)
def test_the_end_comes_where_the_structure_ends(
    kind, text, tiny, start, ask, answers, tokenizer
) -> None:
    structure = Structure(kind=kind, text=text)
    [replies] = answers(start(tiny), ask(n=8, structure=structure, min_new_tokens=9))
    [others] = answers(start(tiny), ask(n=8, structure=structure, ignore_eos=True))

    for reply in (*replies, *others):
        assert re.fullmatch("[ab]{3}c", tokenizer.decode(reply.token_ids, skip_special_tokens=True))
        assert reply.finish_reason == "stop"
    assert {reply.token_ids[-1] for reply in (*replies, *others)} <= {0, 2}  # the end tokens
    assert len({reply.token_ids[:-1] for reply in replies}) > 1


@needs_llguidance
@pytest.mark.parametrize("by", ["stop", "stop_token_ids"])
def test_a_stop_within_a_structure_ends_the_reply_before_the_least_length(
    by, tiny, start, ask, answers, tokenizer
) -> None:
    structure = Structure(kind="regex", text="[ab]{3}![ab]{3}")
    stop = ("!",) if by == "stop" else (tokenizer.convert_tokens_to_ids("!"),)
    [replies] = answers(start(tiny), ask(n=8, structure=structure, min_new_tokens=20, **{by: stop}))
    texts = [tokenizer.decode(reply.token_ids, skip_special_tokens=True) for reply in replies]
    assert all(re.fullmatch("[ab]{3}!", text) for text in texts)
    assert {reply.finish_reason for reply in replies} == {"stop"}


@needs_llguidance
def test_logprobs_are_of_the_full_softmax_beside_rows_that_are_free(
    tiny, start, ask, answers, teacher_forced
) -> None:
    structure = Structure(kind="regex", text="[a-f]{12}")
    held = ask(structure=structure, temperature=0.7)
    free = ask(task=1, n=3)
    engine = start(tiny)

    [[reply], beside] = answers(engine, held, free)

    assert len(reply.token_ids) >= 3
    expected = teacher_forced(tiny, held, reply, temperature=0.7)
    assert reply.logprobs == pytest.approx(expected.tolist(), abs=2e-5)
    assert [r.token_ids for r in answers(start(tiny), free)[0]] == [r.token_ids for r in beside]


@needs_llguidance
def test_greedy_takes_the_likeliest_token_that_is_allowed(tiny, start, ask, answers, tokenizer):
    structure = Structure(kind="regex", text="(yes|no)!")
    [replies] = answers(start(tiny), ask(n=2, structure=structure, temperature=0.0))
    assert replies[0].token_ids == replies[1].token_ids
    assert tokenizer.decode(replies[0].token_ids, skip_special_tokens=True) in {"yes!", "no!"}


@needs_llguidance
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
def test_a_bad_structure_is_refused_when_it_is_asked_for(kind, text, reason, tiny, start, ask):
    with pytest.raises(ModelError, match=re.escape(reason)):
        start(tiny).submit(ask(structure=Structure(kind=kind, text=text)))


def test_without_the_package_the_install_line_is_named(tiny, start, ask, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ModelError, match=re.escape("pip install 'trinity-core[structured]'")):
        start(tiny).submit(ask(structure=Structure(kind="regex", text="a")))


@needs_llguidance
def test_a_long_structure_that_is_compiled_keeps_nobody_waiting(
    tiny, start, ask, slow, tokenizer
) -> None:
    engine = start(tiny)
    held = engine.submit(ask(structure=LONG))
    again = engine.submit(ask(task=1, structure=LONG))

    other = Structure(kind="regex", text="[ab]{3}c")
    (reply,) = engine.submit(ask(task=2, structure=other)).result(60)
    (free,) = engine.submit(ask(task=3)).result(60)

    assert re.fullmatch("[ab]{3}c", tokenizer.decode(reply.token_ids, skip_special_tokens=True))
    assert len(free.token_ids) > 0
    assert not held.done()
    assert engine.num_open == 2
    slow.set()
    for future in (held, again):
        (reply,) = future.result(60)
        said = tokenizer.decode(reply.token_ids, skip_special_tokens=True)
        assert re.match("word[0-9]{1,3}$", said)
    assert engine.num_open == 0


@needs_llguidance
def test_a_long_structure_that_is_bad_is_refused_by_the_answer(tiny, start, ask) -> None:
    bad = Structure(kind="regex", text=LONG.text + "(")
    engine = start(tiny)
    for task in range(2):  # the second is compiled anew: what failed is not kept
        with pytest.raises(ModelError, match=r"is no regex that can be followed: .*unclosed"):
            engine.submit(ask(task=task, structure=bad)).result(60)
    assert engine.num_open == 0


@needs_llguidance
def test_who_gives_up_while_a_structure_is_compiled_is_asked_for_nothing(
    tiny, start, ask, slow
) -> None:
    engine = start(tiny)
    given_up = engine.submit(ask(structure=LONG))
    assert given_up.cancel()
    assert engine.num_open == 0
    slow.set()
    assert len(engine.submit(ask(task=1, structure=LONG)).result(60)) == 1


@needs_llguidance
def test_an_engine_that_is_closed_while_a_structure_is_compiled_says_so(
    tiny, start, ask, slow
) -> None:
    engine = start(tiny)
    waiting = engine.submit(ask(structure=LONG))
    engine.close()
    with pytest.raises(ModelError, match="was closed before it answered"):
        waiting.result(10)
    slow.set()
    with pytest.raises(ModelError, match="the rollout engine is closed"):
        engine.submit(ask(structure=LONG)).result(10)


@needs_llguidance
def test_without_a_thread_the_request_is_refused_and_the_next_one_is_not(
    tiny, start, ask, monkeypatch
) -> None:
    engine = start(tiny)

    def refused(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(ModelError, match=r"structure cannot be compiled: .*start new thread"):
            engine.submit(ask(structure=LONG))
    assert engine.num_open == 0
    assert len(engine.submit(ask(structure=LONG)).result(60)) == 1


@needs_llguidance
def test_two_threads_compile_and_what_nobody_waits_for_is_left_out(tiny, start, ask, slow) -> None:
    engine = start(tiny)
    before = {*threading.enumerate()}
    long = [Structure(kind="regex", text=f"{LONG.text}|{number}") for number in range(5)]
    futures = [engine.submit(ask(task=i, structure=one)) for i, one in enumerate(long)]
    threads = {*threading.enumerate()} - before
    assert len(threads) == 2
    assert futures[3].cancel()
    slow.set()
    for thread in threads:
        thread.join(60)

    for task in (0, 1, 2, 4):
        assert len(futures[task].result(60)) == 1
    assert len(slow.begun) == 4
    assert len(engine.submit(ask(structure=long[3])).result(60)) == 1
    assert len(slow.begun) == 5


@needs_llguidance
def test_how_long_a_structure_is_compiled_does_not_decide_who_joins_with_it(
    tiny, start, ask, slow, monkeypatch
) -> None:
    seen, join = [], Batch.join

    def watched(batch, rows):
        seen.append([(row.request.key.task, row.request.key.request) for row in rows])
        return join(batch, rows)

    monkeypatch.setattr(Batch, "join", watched)
    engine = start(tiny, gate_patience_s=0.0)
    engine.run_began(RunKey())
    held, beside = engine.submit(ask(structure=LONG)), engine.submit(ask(request=1))
    engine.submit(ask(task=9, request=1)).result(60)  # of no run: it waits for nobody
    slow.set()
    for future in (held, beside):
        assert len(future.result(60)) == 1

    assert seen == [[(9, 1)], [(0, 0), (0, 1)]]
