"""Runs that want more samples than an engine computes at a time get them in turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from trinity_tinker.sampling_turns import MAX_ROWS, SamplingTurns


def samplers(*names, engine="engine"):
    return {name: SimpleNamespace(sampled=engine, name=name) for name in names}


async def order_of(asked, *, of):
    """Return who is let in, in order; each stays for a turn of the loop."""
    turns, found = SamplingTurns(), []

    async def one(name, rows):
        async with turns.of(of[name], rows=rows):
            found.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for name, rows in asked:
            group.create_task(one(name, rows))
    return found


def test_one_sample_waits_for_no_thousand_of_another_run():
    asked = [("many", MAX_ROWS)] * 20 + [("few", 1)]

    found = asyncio.run(order_of(asked, of=samplers("many", "few")))

    assert found.index("few") <= 2


def test_runs_that_wait_take_turns():
    asked = [("one", MAX_ROWS)] * 4 + [("two", MAX_ROWS)] * 3

    found = asyncio.run(order_of(asked, of=samplers("one", "two")))

    assert found == ["one", "one", "two", "one", "two", "one", "two"]


def test_what_fits_in_does_not_wait():
    asked = [("one", MAX_ROWS // 4)] * 4
    inside = []

    async def all_at_once():
        turns = SamplingTurns()

        async def one(name, rows):
            async with turns.of(samplers(name)[name], rows=rows):
                inside.append(1)
                await asyncio.wait_for(everybody.wait(), 10)

        everybody = asyncio.Event()
        tasks = [asyncio.create_task(one(*ask)) for ask in asked]
        while len(inside) < 4:
            await asyncio.sleep(0)
        everybody.set()
        await asyncio.gather(*tasks)

    asyncio.run(all_at_once())
    assert len(inside) == 4


def test_other_engines_have_places_of_their_own():
    of = samplers("one") | samplers("other", engine="other")
    asked = [("one", MAX_ROWS), ("one", 1), ("other", MAX_ROWS)]

    assert asyncio.run(order_of(asked, of=of)) == ["one", "other", "one"]


@pytest.mark.parametrize("is_admitted", [False, True])
def test_a_request_that_is_cancelled_while_it_waits_leaves_its_place(is_admitted):
    one = samplers("one")["one"]

    async def cancelled():
        turns = SamplingTurns()
        async with turns.of(one, rows=MAX_ROWS):
            waiting = asyncio.create_task(turns.of(one, rows=MAX_ROWS).__aenter__())
            await asyncio.sleep(0)
            if not is_admitted:
                waiting.cancel()
        waiting.cancel()  # it has its place, and does not know it yet
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(10), turns.of(one, rows=1):
            return True

    assert asyncio.run(cancelled())
