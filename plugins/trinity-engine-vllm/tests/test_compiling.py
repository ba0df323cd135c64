"""Requests that wait for their structures get one answer, however their engine is closed."""

from concurrent.futures import Future

import pytest
from trinity.common.generation import PendingReply
from trinity.errors import ModelError
from trinity_engine_vllm.compiling import Compiling


@pytest.fixture
def reply():
    """Return a function that makes the future of a request."""
    return lambda: PendingReply(on_cancel=lambda: None)


def test_a_structure_that_is_compiled_while_its_engine_is_closed_joins_nothing(reply) -> None:
    compiling, joined = Compiling(), []
    first, second = reply(), reply()
    structures = Future(), Future()
    for future, compiled in zip((first, second), structures, strict=True):
        compiling.add(compiled, future=future, join=joined.append)
    first.add_done_callback(lambda _: structures[1].set_result("compiled"))

    compiling.close(ModelError("closed"))

    for future in (first, second):
        with pytest.raises(ModelError, match="closed"):
            future.result(0)
    assert joined == []


def test_after_its_end_everything_is_refused_at_once(reply) -> None:
    compiling, joined = Compiling(), []
    compiling.close(ModelError("closed"))
    compiled = Future()
    for _ in range(2):  # while it is compiled, and once it is
        with pytest.raises(ModelError, match="closed"):
            compiling.add(compiled, future=reply(), join=joined.append)
        if not compiled.done():
            compiled.set_result("compiled")
    assert (joined, compiling.num_open) == ([], 0)
