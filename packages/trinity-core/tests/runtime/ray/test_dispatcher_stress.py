"""With real threads, and workers that are lost and come back at random, each request ends once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from trinity.common.workflows import Workflow
from trinity.errors import WorkerLostError
from trinity.explorer.failure import cut_short
from trinity.explorer.groups import is_cut
from trinity.explorer.packing import PackedResults
from trinity.explorer.requests import RolloutResult, requests_of
from trinity.runtime.ray.dispatcher import Dispatcher
from trinity.runtime.supervisor import RestartPolicy
from trinity_testing.builders import a_task

LIMIT_S = 30.0
POLL_S = 0.02


class Nothing(Workflow):
    """Is never run: the workers only say that it ended."""

    def run(self):
        return []


class FlakyWorker:
    """Runs each request for a few milliseconds, and loses now and then its process or its engine.

    Its orders end with the number of its process as their duration: 0, 1, 2, ...
    """

    def __init__(self, number, dice):
        self.name = f"runner-{number}"
        self.dice = dice
        self.num_processes = 0
        self.started = Counter()  # by the first key of a request
        self._changed = threading.Condition()
        self._session, self._running, self._ended = "", {}, []
        self._away_until = self._engine_away_since = 0.0

    def call(self, method, /, *args, **kwargs):
        time.sleep(self.dice.random() * 0.002)
        with self._changed:
            if time.monotonic() < self._away_until:
                raise WorkerLostError(self.name, cause="nobody is there")
            return getattr(self, method)(*args, **kwargs)

    def start(self, method, /, *args, **kwargs):
        """Call without waiting, now or a little later, as messages may overtake each other."""
        reply = Future()
        if self.dice.random() < 0.3:
            threading.Timer(self.dice.random() * 0.005, self._late, [method, args, reply]).start()
        else:
            self._late(method, args, reply)
        return SimpleNamespace(result=lambda *, timeout_s: reply.result(timeout_s))

    def _late(self, method, args, reply):
        with self._changed:
            if time.monotonic() < self._away_until:
                reply.set_exception(WorkerLostError(self.name, cause="nobody is there"))
            else:
                reply.set_result(getattr(self, method)(*args))

    def open(self, session):
        self._session, self._running, self._ended = session, {}, []

    def begin(self, session, requests):
        if session != self._session:
            return
        for number, packed in requests:
            requests = packed.unpacked()
            self.started[requests[0].key] += 1
            self._running[number] = (requests, time.monotonic() + self.dice.random() * 0.02)
        self._changed.notify_all()

    def cut(self, session, numbers):
        for number in set(numbers) & self._running.keys():
            if session == self._session:
                requests, _ = self._running.pop(number)
                reports = [
                    RolloutResult(request=request, failure=cut_short(request))
                    for request in requests
                ]
                self._ended.append((number, PackedResults.of(reports)))
        self._changed.notify_all()

    def ended(self, session, timeout_s, *, for_all):
        limit = time.monotonic() + timeout_s
        while (rest := limit - time.monotonic()) > 0:
            self._end_those_that_are_due()
            if self._ended and not (for_all and self._running):
                break
            self._changed.wait(min(rest, 0.002))
        if session != self._session:
            raise WorkerLostError(self.name, cause="it was started anew")
        ended, self._ended = self._ended, []
        since = self._engine_away_since
        return ended, time.monotonic() - since if since else 0.0

    def _end_those_that_are_due(self):
        now = time.monotonic()
        for number, (requests, due) in list(self._running.items()):
            if due < now and not self._engine_away_since:
                del self._running[number]
                reports = [
                    RolloutResult(request=o, duration_s=self.num_processes) for o in requests
                ]
                self._ended.append((number, PackedResults.of(reports)))

    def lose_process(self):
        with self._changed:
            self._away_until = time.monotonic() + self.dice.random() * 0.06
            self.num_processes += 1
            self.open("")
            self._changed.notify_all()

    def lose_engine(self):
        with self._changed:
            self._engine_away_since = time.monotonic()

    def give_engine_back(self):
        with self._changed:
            self._engine_away_since = 0.0


@pytest.fixture
def flaky(request):
    """Return the dice of a seed, workers, and a dispatcher over them."""
    logging.getLogger("trinity").setLevel(logging.ERROR)
    dice = random.Random(request.param)
    workers = [FlakyWorker(n, random.Random(dice.random())) for n in range(dice.randint(1, 4))]
    policy = RestartPolicy(move_s=0.03, return_s=LIMIT_S, num_losses=10**6)
    dispatcher = Dispatcher(workers, policy=policy, poll_s=POLL_S)
    over = threading.Event()
    thread = threading.Thread(target=disturb, args=[workers, dice, over])
    thread.start()
    yield dice, workers, dispatcher
    over.set()
    thread.join(LIMIT_S)
    dispatcher.close()
    for own in dispatcher._threads:
        own.join(LIMIT_S)
        assert not own.is_alive()
    logging.getLogger("trinity").setLevel(logging.NOTSET)


def disturb(workers, dice, over):
    while not over.wait(dice.random() * 0.05):
        worker = dice.choice(workers)
        harm = dice.choice(["lose_process", "lose_engine", "give_engine_back", "give_engine_back"])
        getattr(worker, harm)()
    for worker in workers:
        worker.give_engine_back()


def requests_for(number, *, batch="1", runs=2):
    task = a_task(workflow=Nothing, repeat_times=runs)
    return requests_of(task, batch=batch, number=number, max_repeat_times=None)


@pytest.mark.parametrize("flaky", range(12), indirect=True)
def test_a_step_has_one_report_of_each_order_in_their_order(flaky) -> None:
    dice, _, dispatcher = flaky
    with ThreadPoolExecutor(1) as pool:
        for step in range(1, 9):
            tasks = range(dice.randint(1, 12))
            requests = [o for n in tasks for o in requests_for(n, batch=str(step))]
            dice.shuffle(requests)
            reports = pool.submit(dispatcher.run, requests).result(LIMIT_S)

            assert [report.request for report in reports] == requests
            assert not any(map(is_cut, reports))


@pytest.mark.parametrize("flaky", range(12), indirect=True)
def test_each_group_ends_once_and_only_those_that_were_cut_are(flaky) -> None:
    dice, workers, dispatcher = flaky
    ended, cut, begun, limit = {}, set(), 0, time.monotonic() + LIMIT_S
    while len(ended) < 60:
        assert time.monotonic() < limit
        while begun < 60 and begun - len(ended) < 8:
            dispatcher.begin(begun, requests_for(begun))
            begun += 1
        open_ones = [name for name in range(begun) if name not in ended]
        if open_ones and dice.random() < 0.1:
            cut.add(dice.choice(open_ones))
        for name in cut - ended.keys():
            dispatcher.cut(name)
        for name, reports in dispatcher.ended(0.005):
            assert name not in ended
            ended[name] = reports
        assert set(dispatcher.moved()) <= set(range(begun))
    time.sleep(3 * POLL_S)

    assert dispatcher.ended(0.0) == []
    assert sorted(ended) == list(range(60))
    for name, reports in ended.items():
        assert [report.request for report in reports] == requests_for(name)
        assert name in cut or not any(map(is_cut, reports))
    again = sum((worker.started for worker in workers), Counter())
    assert sum(again.values()) >= 60 - len(cut)
