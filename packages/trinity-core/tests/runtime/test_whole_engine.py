"""An engine that lacks an ability is not asked for it."""

import re
from concurrent.futures import Future

import pytest
from trinity.common.ports import GenerationRequest, Structure
from trinity.errors import ModelError
from trinity.extend import get_manager
from trinity.extend.kinds import KINDS
from trinity.runtime.whole_engine import whole_engine


class OldEngine:
    """An engine that knows nothing of stop strings and structures."""

    version = 0

    def __init__(self):
        self.requests = []

    def submit(self, request):
        self.requests.append(request)
        return Future()

    def run_began(self):
        pass

    def run_ended(self):
        pass

    def load_weights(self, snapshot):
        pass

    def close(self):
        pass


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("stop", ("a",), "stop_strings"),
        ("stop_token_ids", (3,), "stop_strings"),
        ("structure", Structure(kind="regex", text="a"), "structure"),
    ],
)
def test_a_field_that_an_engine_does_not_know_is_refused_by_name(field, value, word) -> None:
    engine = whole_engine(OldEngine(), abilities=frozenset({"logprobs"}), name="old")
    with pytest.raises(
        ModelError,
        match=re.escape(
            f"{field} is asked for, and the rollout engine old does not provide '{word}'"
        ),
    ):
        engine.submit(GenerationRequest(prompt_token_ids=(1,), **{field: value}))

    engine.submit(GenerationRequest(prompt_token_ids=(1,)))
    assert len(engine.requests) == 1


def test_an_ability_that_no_class_shows_is_there_only_by_its_word() -> None:
    kind = KINDS["rollout_engine"]
    own = get_manager().find("rollout_engine", "transformers")

    assert {"stop_strings", "structure", "busy_s", "shares_module"} <= kind.abilities_of(own)
    assert kind.abilities_in(OldEngine) == frozenset()
    assert kind.abilities_in(own.load()) == {
        "busy_s",
        "in_flight",
        "scores",
        "shares_module",
    }


class Swapping(OldEngine):
    """An engine that takes weights between two steps."""

    def __init__(self):
        super().__init__()
        self.given = []

    def load_weights(self, snapshot):
        self.given.append((snapshot, "load"))

    def swap_weights(self, snapshot, *, in_flight):
        self.given.append((snapshot, in_flight))


@pytest.mark.parametrize(
    ("in_flight", "abilities", "how"),
    [
        ("keep", {"in_flight"}, "keep"),
        ("abort", {"in_flight"}, "abort"),
        ("finish", {"in_flight"}, "load"),
        ("keep", set(), "load"),
    ],
)
def test_weights_come_as_the_configuration_says_where_the_engine_can(
    in_flight, abilities, how
) -> None:
    engine = Swapping()
    whole_engine(engine, abilities=frozenset(abilities), in_flight=in_flight).load_weights("w")
    assert engine.given == [("w", how)]
