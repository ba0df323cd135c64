"""Which waiting rows join: in order, within the bounds, and not one by one."""

from concurrent.futures import Future

import pytest
from trinity.engines.lockstep import QueuedRequest
from trinity.engines.request_queue import RequestQueue


@pytest.fixture
def backlog(ask):
    """Return a function that makes a backlog of requests."""

    def make(*requests, max_rows=99, max_tokens=10_000, max_model_len=128):
        made = RequestQueue(max_rows=max_rows, max_tokens=max_tokens, max_model_len=max_model_len)
        made.add(QueuedRequest(request=request, future=Future()) for request in requests)
        return made

    return make


def names(rows):
    return [(row.request.key.task, row.sample) for row in rows]


def test_what_fits_joins_in_order(backlog, ask):
    waiting = backlog(*(ask(task=i, n=2) for i in range(3)), max_rows=6)
    assert names(waiting.joining([])) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(waiting) == 0


def test_a_request_that_fits_whole_is_not_cut(backlog, ask):
    waiting = backlog(*(ask(task=i, n=2) for i in range(3)), max_rows=5)
    batch = waiting.joining([])
    assert names(batch) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert waiting.joining(batch) == []
    assert names(waiting.joining(batch[1:])) == [(2, 0), (2, 1)]


def test_tokens_count_as_if_every_row_were_as_long_as_the_longest(backlog, ask):
    waiting = backlog(*(ask(range(5, 15), task=i) for i in range(3)), max_tokens=2 * 26)
    assert names(waiting.joining([])) == [(0, 0), (1, 0)]  # 10 + 16 tokens each


def test_a_request_that_never_fits_whole_joins_in_parts(backlog, ask):
    waiting = backlog(ask(n=5), max_rows=2)
    batch = waiting.joining([])
    assert names(batch) == [(0, 0), (0, 1)]
    assert names(waiting.joining(batch[:1])) == [(0, 2)]
    assert names(waiting.joining([])) == [(0, 3), (0, 4)]


def test_a_row_larger_than_the_bounds_runs_alone(backlog, ask):
    waiting = backlog(ask(range(5, 15)), ask(), max_tokens=20)
    batch = waiting.joining([])
    assert names(batch) == [(0, 0)]
    assert waiting.joining(batch) == []


def test_an_eighth_of_the_batch_joins_at_a_time(backlog, ask):
    waiting = backlog(*(ask(task=i) for i in range(40)), max_rows=32)
    batch = waiting.joining([])
    assert len(batch) == 32
    assert waiting.joining(batch[:30]) == []
    assert names(waiting.joining(batch[:28])) == [(32, 0), (33, 0), (34, 0), (35, 0)]
    # the last ones need not wait for more of them
    assert names(waiting.joining(batch[:28])) == [(36, 0), (37, 0), (38, 0), (39, 0)]


def test_before_new_weights_only_what_began_goes_on(backlog, ask):
    waiting = backlog(ask(n=3), ask(task=1), max_rows=2)
    waiting.joining([])
    assert names(waiting.joining([], only_begun=True)) == [(0, 2)]
    assert waiting.joining([], only_begun=True) == []
    assert len(waiting.untouched()) == 1


def test_a_reply_is_bounded_by_the_context(backlog, ask):
    [row] = backlog(ask(range(5, 15), max_new_tokens=50), max_model_len=16).joining([])
    assert row.limit == 6
