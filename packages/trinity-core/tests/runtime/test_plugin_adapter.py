"""A part that does not inherit its base class runs with the defaults of that class."""

import re
from concurrent.futures import Future

import pytest
import torch
from trinity.common.ports import (
    GenerationRequest,
    RolloutEngine,
    Storage,
    Structure,
    WeightSnapshot,
)
from trinity.common.ports.weights import TensorStream
from trinity.errors import CheckpointError, ModelError
from trinity.extend import get_manager
from trinity.extend.kinds import KINDS
from trinity.runtime.plugin_adapter import adapted_part
from trinity.runtime.storage_state import load_state, state_of
from trinity.synchronizer.memory_sync import MemorySync


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
        ("presence_penalty", 0.5, "penalties"),
        ("frequency_penalty", -0.5, "penalties"),
        ("logit_bias", ((3, 1.0),), "penalties"),
        ("seed", "0", "penalties"),
    ],
)
def test_a_field_that_an_engine_does_not_know_is_refused_by_name(field, value, word) -> None:
    engine = adapted_part(OldEngine(), "rollout_engine", can=frozenset({"logprobs"}), name="old")
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
        "adapters",
        "busy_s",
        "in_flight",
        "lockstep",
        "penalties",
        "scores",
        "shares_module",
        "stop_strings",
        "structure",
        "weights:stream",
    }


class OldStorage:
    """A storage that takes nothing back; what is called as an optional method is something else."""

    gives_again = True

    def __init__(self):
        self.rows, self.counts = [], 3

    def write(self, experiences):
        self.rows += experiences

    def read(self, count, *, timeout_s, min_model_version=0):
        if not self.rows:
            raise StopIteration
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def available(self):
        return len(self.rows)

    def waiting(self):
        return list(self.rows)

    def close(self):
        pass


def old_storage(*words):
    return adapted_part(OldStorage(), "storage", can=frozenset(words), name="old")


def test_what_was_put_back_is_read_first_and_held_by_a_checkpoint() -> None:
    storage = old_storage("waiting")
    storage.write([1, 2, 3])
    storage.put_back(storage.read(2, timeout_s=0))

    assert (storage.available(), storage.waiting()) == (3, [1, 2, 3])
    assert storage.read(1, timeout_s=0) + storage.read(5, timeout_s=0) == [1, 2, 3]
    with pytest.raises(StopIteration):
        storage.read(1, timeout_s=0)


def test_a_part_has_the_abilities_that_it_says_and_no_others() -> None:
    assert isinstance(old_storage(), Storage)
    assert old_storage("gives_again").gives_again
    assert not old_storage().gives_again
    assert old_storage().counts() == {}
    assert old_storage().waiting() == []


def test_what_waited_in_a_storage_that_keeps_nothing_is_missed_by_name() -> None:
    storage = old_storage()
    storage.write([1, 2])
    state = state_of(storage)

    with pytest.raises(CheckpointError, match="2 experiences waited in storage old"):
        load_state(storage, state, name="old")


class Keeping(RolloutEngine):
    """An engine that knows all fields of a request, and keeps the weights that it is given."""

    takes_structure = takes_stop_strings = takes_penalties = True

    submit = run_began = run_ended = close = lambda self, *args: None

    def load_weights(self, snapshot):
        self.kept = snapshot


class Streaming(Keeping):
    takes_stream = True


@pytest.mark.parametrize(("cls", "type_given"), [(Keeping, dict), (Streaming, TensorStream)])
def test_only_an_engine_that_takes_a_stream_of_weights_is_given_one(cls, type_given) -> None:
    """The trainer's model moves on while the engine keeps what it was given."""
    can = KINDS["rollout_engine"].abilities_in(cls)
    engine = adapted_part(cls(), "rollout_engine", can=can, name="keeping")
    trained = torch.tensor([1.0])
    stream = TensorStream({"w": trained.to("meta")}, lambda _: 2 * trained, is_gathered=False)

    MemorySync([engine]).sync(lambda: WeightSnapshot(version=3, tensors=stream))
    trained.fill_(5.0)

    assert type(engine.kept.tensors) is type_given
    assert engine.kept.version == 3
    assert engine.kept.tensors["w"] == (2.0 if type_given is dict else 10.0)


class Swapping(OldEngine):
    """An engine that takes weights between two steps."""

    def __init__(self):
        super().__init__()
        self.given = []

    def load_weights(self, snapshot):
        self.given.append((snapshot, "load"))

    def swap_weights(self, snapshot, *, in_flight):
        self.given.append((snapshot, in_flight))


class SwappingEngine(Swapping, RolloutEngine):
    """One of the base class."""

    takes_stop_strings = takes_structure = True


@pytest.mark.parametrize("cls", [Swapping, SwappingEngine])
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
    cls, in_flight, abilities, how
) -> None:
    engine, weights = cls(), WeightSnapshot(version=1, tensors={})
    adapted_part(
        engine, "rollout_engine", can=frozenset(abilities), name="swaps", in_flight=in_flight
    ).load_weights(weights)
    assert engine.given == [(weights, how)]


class OldPriority:
    """A priority function of before; what it calls state_dict is no method."""

    state_dict = None

    def __call__(self, experiences):
        return float(len(experiences)), True


def test_a_priority_function_without_words_judges_and_has_no_state() -> None:
    judge = adapted_part(OldPriority(), "priority_fn", can=frozenset(), name="old")

    assert judge([1, 2]) == (2.0, True)
    assert judge.state_dict() == {}


class Outer:
    """A storage that passes on what it is asked for, and counts in an attribute of its own."""

    def __init__(self):
        self.busy_s = 3.0

    def write(self, experiences): ...

    def read(self, count, *, timeout_s, min_model_version=0): ...

    def available(self):
        return 0

    def close(self): ...

    def __getattr__(self, name):
        if name == "state_dict":
            return lambda: {"rows_kept_elsewhere": 42}
        if name == "load_state_dict":
            return lambda state: None
        raise AttributeError(name)


def test_the_state_of_a_storage_that_finds_its_methods_late_is_in_the_checkpoint() -> None:
    storage = adapted_part(Outer(), "storage", can=frozenset({"state", "put_back"}), name="outer")

    assert storage.state_dict() == {"rows_kept_elsewhere": 42}


def test_a_class_with_the_base_that_forgets_a_method_is_refused_before_the_run() -> None:
    class Forgetful(Storage):
        def write(self, experiences): ...

    assert KINDS["storage"].problem_of(Forgetful) == (
        "Forgetful does not define available(), read()",
        "Define it.",
    )
