"""Experiences survive the way to another process, whatever they hold."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trinity.common.experience import EID, Experience
from trinity.common.wire import encode
from trinity.errors import DataError


@dataclass
class Board:
    """A user's class."""

    squares: list[int]


TEXT = st.text(max_size=8)
FLOATS = st.floats(width=32, allow_nan=False)
IDS = st.integers(min_value=-(2**40), max_value=2**40)
VALUES = st.one_of(
    st.integers(), FLOATS, TEXT, st.none(), st.builds(Board, st.lists(st.integers()))
)
MESSAGES = st.none() | st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2)


@st.composite
def an_experience(draw) -> Experience:
    prompt, response = draw(st.integers(1, 4)), draw(st.integers(0, 5))

    def per_token(values):
        return draw(st.none() | st.lists(values, min_size=response, max_size=response))

    return Experience(
        tokens=draw(st.lists(IDS, min_size=prompt + response, max_size=prompt + response)),
        prompt_length=prompt,
        eid=EID(draw(st.integers() | TEXT), draw(st.integers() | TEXT), draw(st.integers())),
        logprobs=per_token(FLOATS),
        action_mask=per_token(st.booleans()),
        reward=draw(st.none() | FLOATS),
        token_level_reward=per_token(FLOATS),
        advantages=per_token(FLOATS),
        returns=per_token(FLOATS),
        temperature=draw(FLOATS),
        truncate_status=draw(st.none() | TEXT),
        info=draw(st.dictionaries(TEXT, VALUES, max_size=3)),
        metrics=draw(st.dictionaries(TEXT, FLOATS, max_size=3)),
        prompt_text=draw(st.none() | TEXT),
        response_text=draw(st.none() | TEXT),
        messages=draw(MESSAGES),
        tools=draw(MESSAGES),
        chosen=draw(st.none() | st.lists(IDS, max_size=4)),
        rejected=draw(st.none() | st.lists(IDS, max_size=4)),
        chosen_messages=draw(MESSAGES),
        rejected_messages=draw(MESSAGES),
        teacher_logprobs=draw(st.none() | st.lists(FLOATS, max_size=4)),
    )


def assert_equal(one: Experience, other: Experience) -> None:
    for field in fields(Experience):
        own, others = getattr(one, field.name), getattr(other, field.name)
        if isinstance(own, torch.Tensor):
            assert (own.dtype, own.tolist()) == (others.dtype, others.tolist()), field.name
        else:
            assert own == others, field.name


@given(st.lists(an_experience(), max_size=4))
@settings(deadline=None, max_examples=25)
def test_what_is_decoded_is_what_was_encoded(experiences) -> None:
    packet = pickle.loads(pickle.dumps(encode(experiences), protocol=5))

    decoded = packet.decode()

    assert len(packet) == len(decoded) == len(experiences)
    assert list(packet.eids) == [experience.eid.uid for experience in experiences]
    for one, other in zip(experiences, decoded, strict=True):
        assert_equal(one, other)


def test_the_columns_travel_beside_the_pickle_and_small_ids_in_half_the_bytes() -> None:
    experiences = [
        Experience(tokens=range(600), prompt_length=100, logprobs=[0.0] * 500) for _ in range(4)
    ]
    beside: list[pickle.PickleBuffer] = []

    pickled = pickle.dumps(encode(experiences), protocol=5, buffer_callback=beside.append)

    sizes = sorted(buffer.raw().nbytes for buffer in beside)
    assert sizes[-2:] == [4 * 500 * 4, 4 * 600 * 4]  # float32 logprobs, int32 tokens
    assert len(pickled) < 2000


def test_what_a_reader_writes_into_an_experience_reaches_nobody_else() -> None:
    experience = Experience(tokens=[1, 2, 3], prompt_length=1, logprobs=[0.5, 0.5])
    packet = encode([experience])

    packet.decode()[0].logprobs.zero_()

    assert packet.decode()[0].logprobs.tolist() == [0.5, 0.5]
    assert experience.logprobs.tolist() == [0.5, 0.5]


def test_a_class_that_no_module_holds_travels_by_value() -> None:
    namespace: dict = {"__name__": "__main__"}
    exec("class Own:\n    number = 3", namespace)
    packet = encode([Experience(tokens=[1, 2], info={"own": namespace["Own"]()})])

    assert packet.decode()[0].info["own"].number == 3


def test_what_cannot_travel_is_named_with_its_experience() -> None:
    import threading

    good = Experience(tokens=[1, 2], eid=EID(1, 0, 0))
    bad = Experience(tokens=[1, 2], eid=EID(1, 0, 1), info={"lock": threading.Lock()})

    with pytest.raises(DataError, match=r"experience 1/0/1/0 cannot travel.*its info holds"):
        encode([good, bad])


def test_what_is_only_passed_on_goes_as_it_came_in_parts_and_out_of_several_packets() -> None:
    def made(step: int) -> list[Experience]:
        whole = {"logprobs": [0.25, -1.5], "advantages": [1.0, 2.0], "returns": [1.0, 2.0]}
        return [
            Experience(tokens=[7, 2**40, 3], eid=EID(step, 0, 0), reward=0.5, **whole),
            Experience(tokens=[9, 5], eid=EID(step, 0, 1), info={"model_version": step}),
            Experience(tokens=[1], eid=EID(step, 0, 2), logprobs=[], action_mask=[]),
        ]

    given = [*made(1), *made(2)]
    held = [*encode(made(1)).held(), *encode(made(2)).held()]
    part = encode(held[1:5]).decode()

    for one, other in zip(part, given[1:5], strict=True):
        assert one.to_dict() == other.to_dict()
    assert not any("tokens" in experience.__dict__ for experience in held)


def test_what_is_held_can_be_read_changed_and_pickled_as_any_experience() -> None:
    made = [Experience(tokens=[3, 4], reward=1.0), Experience(tokens=[5, 6], logprobs=[-0.5])]
    first, second = encode(made).held()

    first.logprobs = torch.tensor([-2.0])
    second.tokens[0] = 8
    second.info["seen"] = True

    assert isinstance(first, Experience)
    assert second.response_length == 1
    assert first != second
    assert pickle.loads(pickle.dumps(second)) == second
    one, other = encode([first, second]).decode()
    assert one.logprobs.tolist() == [-2.0]
    assert (other.tokens.tolist(), other.logprobs.tolist()) == ([8, 6], [-0.5])
    assert other.info == {"seen": True}


def test_what_is_masked_on_the_way_stays_masked() -> None:
    made = [Experience(tokens=[1, 2, 3], reward=1.0) for _ in range(2)]
    made[0].action_mask.zero_()

    held = encode(made).held()
    held[1].action_mask[1] = False
    arrived = encode(held).decode()

    assert [one.action_mask.tolist() for one in arrived] == [[False, False], [True, False]]
    assert made[1].action_mask.all()
