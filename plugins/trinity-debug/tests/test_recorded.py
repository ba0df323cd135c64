"""What was recorded of a run becomes the calls that it made."""

from types import SimpleNamespace

import numpy as np
import pytest
from trinity.common.experience import EID, Experience
from trinity.common.models.chat_format import ChatFormat
from trinity.common.ports import GenerationRequest
from trinity.errors import ConfigError, ModelError
from trinity.runtime.record.samples import SampleLog
from trinity_debug.engines import Repeating
from trinity_debug.recorded import Exchange, recorded_run
from trinity_debug.session import Debugged
from trinity_testing.tiny import make_tiny_tokenizer

END = 2


def row(eid, *, tokens, prompt_length, mask=None, reward=1.0, info=None, **options):
    index = {"taskset_id": 0, "index": 5}
    return Experience(
        tokens=tokens,
        prompt_length=prompt_length,
        eid=eid,
        action_mask=mask,
        logprobs=[-0.5] * (len(tokens) - prompt_length),
        reward=reward,
        info={"model_version": 0, "task_index": index, **(info or {})},
        **options,
    )


@pytest.fixture
def run_of(tmp_path):
    """Return a function: the rows of each train step -> what was recorded of 1/0/0."""

    def recorded(*steps, place="1/0/0"):
        log = SampleLog(tmp_path, limit=10**6)
        for step, rows in enumerate(steps, start=1):
            log.trained(step, rows)
        return recorded_run(tmp_path / place, end_tokens=[END])

    return recorded


def test_a_run_directory_without_a_try_is_told_how_to_name_one(run_of) -> None:
    rows = [row(EID("1", 0, 0), tokens=[5, 6, END], prompt_length=2)]
    with pytest.raises(ConfigError, match=r"is a run directory\. Name a try in it, as .*/3/7/0"):
        run_of(rows, place="")


def test_each_stretch_of_the_models_own_tokens_is_a_reply(run_of) -> None:
    mask = [True, True, False, True]
    run = run_of([row(EID("1", 0, 0), tokens=[5, 6, 7, END, 8, 9], prompt_length=2, mask=mask)])
    assert (run.row, run.run, run.rewards) == (5, 0, {"1/0/0/0": 1.0})
    assert [(e.prompt, e.reply, e.is_cut) for e in run.exchanges] == [
        ((5, 6), (7, END), False),
        ((5, 6, 7, END, 8), (9,), True),
    ]


def test_an_experience_that_was_trained_twice_was_said_once(run_of) -> None:
    one = row(EID("1", 0, 0), tokens=[5, 6, END], prompt_length=2)
    assert len(run_of([one], [one]).exchanges) == 1


def test_chains_come_in_their_order_whichever_is_longer(run_of) -> None:
    first = row(EID("1", 0, 0, 0, "chain-0"), tokens=[5, 6, 7, 8, END], prompt_length=4)
    last = row(EID("1", 0, 0), tokens=[9, END], prompt_length=1)
    run = run_of([last, first])
    assert [exchange.prompt for exchange in run.exchanges] == [(5, 6, 7, 8), (9,)]


@pytest.mark.parametrize("place", ["1/0/0", "1/0-judge/0", "1/0"])
def test_what_each_agent_said_is_of_the_same_try(run_of, place) -> None:
    solver = row(EID("1", "0-solver", 0, 0), tokens=[5, 6, END], prompt_length=2)
    judge = row(EID("1", "0-judge", 0, 1), tokens=[7, 8, END], prompt_length=1)
    others = [row(EID("1", n, 1), tokens=[9, END], prompt_length=1) for n in ("0-solver", "01", 7)]
    run = run_of([judge, *others, solver], place=place)
    assert [exchange.prompt for exchange in run.exchanges] == [(5, 6), (7,)]
    assert (run.batch, run.task, run.run) == ("1", 0, 0)


@pytest.mark.parametrize("place", ["1/0-typo/0", "1/0-typo", "1/0-/0"])
def test_an_agent_that_the_try_does_not_have_is_refused_with_those_that_it_has(
    run_of, place
) -> None:
    names = ("0-solver", "0-judge")
    rows = [row(EID("1", name, 0), tokens=[5, 6, END], prompt_length=2) for name in names]
    group = place.split("/")[1]
    with pytest.raises(ConfigError, match=f"group {group}, and that try has 0-judge, 0-solver:"):
        run_of(rows, place=place)


def test_an_agent_that_only_a_later_try_has_is_replayed_from_there(run_of) -> None:
    first = row(EID("1", "0-solver", 0), tokens=[5, 6, END], prompt_length=2)
    later = row(EID("1", "0-judge", 1), tokens=[7, 8, END], prompt_length=1)
    assert run_of([first, later], place="1/0-judge").run == 1


SOLVED, JUDGED, JUDGED_LONGER = (5, 6, 7, END), (5, 6, 8, END), (5, 6, 8, 8, END)


@pytest.mark.parametrize("judged", [JUDGED, JUDGED_LONGER])
@pytest.mark.parametrize("names", [("0-0", "1-0"), ("10-0", "9-0"), ("4-1", "4-0")])
@pytest.mark.parametrize("is_written_so", [True, False])
def test_calls_with_one_prompt_come_in_their_order_whichever_was_written_first(
    run_of, judged, names, is_written_so
) -> None:
    agents = [("0-solver", SOLVED, names[0]), ("0-judge", judged, names[1])]
    rows = [
        row(EID("1", g, 0), tokens=t, prompt_length=2, info={"reply_names": [[0, name]]})
        for g, t, name in agents
    ]
    run = run_of(rows if is_written_so else rows[::-1])
    solved_first = names == ("0-0", "1-0")
    said = [SOLVED[2:], judged[2:]] if solved_first else [judged[2:], SOLVED[2:]]
    assert [exchange.reply for exchange in run.exchanges] == said
    assert run.num_ambiguous == 0


@pytest.mark.parametrize("judged", [JUDGED, JUDGED_LONGER])
@pytest.mark.parametrize("is_solved_first", [True, False])
def test_of_an_old_run_they_come_as_they_were_written_and_are_ambiguous(
    run_of, judged, is_solved_first
) -> None:
    agents = [("0-solver", SOLVED), ("0-judge", judged)]
    rows = [row(EID("1", g, 0), tokens=tokens, prompt_length=2) for g, tokens in agents]
    run = run_of(rows if is_solved_first else rows[::-1])
    said = [SOLVED[2:], judged[2:]]
    assert [one.reply for one in run.exchanges] == (said if is_solved_first else said[::-1])
    assert run.num_ambiguous == 2


def test_one_call_without_a_place_leaves_the_others_in_their_order(run_of) -> None:
    told = {name: {"info": {"reply_names": [[0, name]]}} for name in ("2-0", "1-0", "0-0")}
    rows = [
        row(EID("1", 0, 0, n), tokens=[5 + n, 9, END], prompt_length=1, **given)
        for n, given in enumerate([told["2-0"], {}, told["1-0"], told["0-0"]])
    ]
    run = run_of(rows)
    assert [exchange.prompt for exchange in run.exchanges] == [(8,), (6,), (7,), (5,)]
    assert run.num_unordered == 1
    assert run.num_ambiguous == 0  # each asked something else


def test_only_calls_that_ask_the_same_as_one_without_a_place_are_ambiguous(run_of) -> None:
    asked = [([5, 6, END], "3-0"), ([5, 7, END], "2-0"), ([8, 6, END], "1-0"), ([8, 7, END], "")]
    rows = [
        row(
            EID("1", 0, 0, n),
            tokens=tokens,
            prompt_length=1,
            info={"reply_names": [[0, name]]} if name else None,
        )
        for n, (tokens, name) in enumerate(asked)
    ]
    run = run_of(rows)
    assert [exchange.reply[0] for exchange in run.exchanges] == [6, 7, 6, 7]
    assert [exchange.prompt[0] for exchange in run.exchanges] == [8, 5, 5, 8]
    assert (run.num_unordered, run.num_ambiguous) == (1, 2)


def test_the_calls_of_two_chats_come_in_turn(run_of) -> None:
    mask = [True, False, True]
    names = [[[0, "0-0"], [2, "2-0"]], [[0, "1-0"], [2, "3-0"]]]
    rows = [
        row(EID("1", 0, 0, n), tokens=[5, 6 + n, 9, END], prompt_length=1, mask=mask, info=info)
        for n, info in enumerate({"reply_names": of} for of in names)
    ]
    run = run_of(rows)
    assert [exchange.prompt for exchange in run.exchanges] == [(5,), (5,), (5, 6, 9), (5, 7, 9)]
    assert [exchange.reply for exchange in run.exchanges] == [(6,), (7,), (END,), (END,)]


def test_the_names_of_a_long_chat_are_kept_whole(run_of) -> None:
    names = [[place, f"{place}-0"] for place in range(0, 200, 2)]
    tokens, mask = [5, *[6] * 199], [True, False] * 99 + [True]
    info = {"reply_names": names}
    run = run_of([row(EID("1", 0, 0), tokens=tokens, prompt_length=1, mask=mask, info=info)])
    assert [one.order for one in run.exchanges] == [(place, 0) for place in range(0, 200, 2)]


def test_a_run_whose_replies_are_masked_is_refused(run_of) -> None:
    masked = row(EID("1", 0, 0), tokens=[5, 6, END], prompt_length=2, mask=[False])
    with pytest.raises(ConfigError, match="own tokens of 1/0/0 are masked"):
        run_of([masked])


def test_a_batch_alone_names_no_run(run_of) -> None:
    with pytest.raises(ConfigError, match="Name a try as RUN_DIR/batch/task/run"):
        run_of([row(EID("1", 0, 0), tokens=[5, 6, END], prompt_length=2)], place="1")


def repeating(*exchanges):
    form = ChatFormat(make_tiny_tokenizer())
    made = [Exchange(prompt=p, reply=r, logprobs=(), is_cut=True) for p, r in exchanges]
    return Repeating(made, chat_format=form)


def test_the_first_difference_stands_whatever_is_asked_later() -> None:
    engine = repeating(((5, 6), (7,)), ((5, 6, 7, 8), (9,)))
    ask = lambda *ids: engine.submit(GenerationRequest(prompt_token_ids=ids))  # noqa: E731
    with pytest.raises(ModelError, match="call 1 differs from the recorded one after 1 tokens"):
        ask(5, 9).result()
    first = engine.difference
    with pytest.raises(ModelError, match="an earlier call differs"):
        ask(5, 6).result()
    assert (engine.difference, engine.num_repeated) == (first, 0)


@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [({}, "length"), ({"stop_token_ids": (7,)}, "stop"), ({"stop": ("x",)}, "length")],
)
def test_a_reply_ends_by_what_the_request_says_ends_one(ended_by, reason) -> None:
    engine = repeating(((5, 6), (8, 7)))
    [reply] = engine.submit(GenerationRequest(prompt_token_ids=(5, 6), **ended_by)).result()
    assert reply.finish_reason == reason


def test_the_rewards_of_all_experiences_are_compared(run_of) -> None:
    steps = [row(EID("1", 0, 0, step), tokens=[5, 6, END], prompt_length=2) for step in range(2)]
    recorded = run_of(steps)
    done = SimpleNamespace(difference=None, num_repeated=2, left=[], text=str)

    def difference(experiences, **options):
        return Debugged(
            outcome=experiences, traceback="", recorded=recorded, repeating=done, **options
        ).difference

    assert difference(steps) is None
    other = row(EID("1", 0, 0, 0), tokens=[5, 6, END], prompt_length=2, reward=0.0)
    assert "the reward of 1/0/0/0 was 1.0, and is now 0.0" in str(difference([other, steps[1]]))
    assert "there is no experience 1/0/0/1 any more" in str(difference(steps[:1]))
    assert difference([other, steps[1]], is_reshaped=True) is None
    tokens = row(EID("1", 0, 0, 0), tokens=[5, 7, END], prompt_length=2)
    assert str(difference([tokens, steps[1]])) == (
        "the replay differs at token 2 of 3 of the experience 1/0/0/0. It was recorded as "
        f"'[6, {END}]', now '[7, {END}]'"
    )
    masked = row(EID("1", 0, 0, 0), tokens=[5, 6, END], prompt_length=2)
    masked.action_mask[0] = False
    assert str(difference([masked, steps[1]])) == (
        "the replay differs: 1 tokens of the experience 1/0/0/0 were the model's own, and 0 are "
        "now; token 3 is the first"
    )


def test_token_rewards_are_compared_by_their_sum(run_of) -> None:
    given = np.array([0.25, 0.5], dtype=np.float32)
    made = row(
        EID("1", 0, 0),
        tokens=[5, 6, END],
        prompt_length=1,
        reward=None,
        token_level_reward=given.tolist(),
    )
    assert run_of([made]).rewards == {"1/0/0/0": 0.75}
