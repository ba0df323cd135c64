"""What a process prints leaves it without secrets, however it is cut into writes."""

from __future__ import annotations

import io
import logging
from threading import Event, Thread

import pytest
from trinity.common import secrets
from trinity.common.secrets import MaskedStream
from trinity.runtime.ray.worker import _Lines as Lines

SECRET = "open-sesame-4711"


@pytest.fixture(autouse=True)
def _remembered(monkeypatch):
    monkeypatch.setattr(secrets, "_masker", secrets.Masker([SECRET]))


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.mark.parametrize(("cut", "end"), [(1, ""), (15, ""), (4, "\n")])
def test_a_secret_in_two_writes_is_hidden(cut, end) -> None:
    text, log = io.StringIO(), Kept()
    stream, lines = MaskedStream(text), Lines(log, "stdout")

    for one in (stream, lines):
        one.write(f"refused: {SECRET[:cut]}{end}")
        if not end:
            one.flush()
        one.write(f"{SECRET[cut:]} it was\nand sess")
        one.flush()
    stream.end()

    assert text.getvalue() == "refused: **** it was\nand sess"
    assert log.lines == ["refused: **** it was", "and sess"]


def test_a_line_that_ends_like_a_secret_begins_is_not_held_back() -> None:
    text = io.StringIO()

    MaskedStream(text).write("step 2 to\n")

    assert text.getvalue() == "step 2 to\n"


@pytest.mark.parametrize("last", ["\n", " it was\n", ""])
def test_a_secret_that_ends_as_another_begins_is_hidden(monkeypatch, last) -> None:
    monkeypatch.setattr(secrets, "_masker", secrets.Masker([SECRET, "11-other-key"]))
    text = io.StringIO()
    stream = MaskedStream(text)

    for one in ("refused: ", SECRET, last):  # as print() writes
        stream.write(one)
    stream.end()

    assert text.getvalue() == f"refused: ****{last}"


def test_keys_that_come_in_two_threads_at_once_are_both_hidden(monkeypatch) -> None:
    begun, other_is_done = Event(), Event()

    class Slow(secrets.Masker):
        def __init__(self, known) -> None:
            super().__init__(known)
            if not begun.is_set():
                begun.set()
                other_is_done.wait(0.2)

    monkeypatch.setattr(secrets, "Masker", Slow)
    monkeypatch.setattr(secrets, "_known", set())
    first = Thread(target=secrets.remember, args=[["first-key-4711"]])
    first.start()
    begun.wait()
    secrets.remember(["other-key-4711"])
    other_is_done.set()
    first.join()

    assert secrets.masked("first-key-4711 other-key-4711") == "**** ****"


def test_what_one_thread_holds_back_is_written_once_though_another_prints(monkeypatch) -> None:
    begun, other_has_written = Event(), Event()

    class Slow(secrets.Masker):
        def num_pending(self, text: str) -> int:
            if not begun.is_set():
                begun.set()
                other_has_written.wait(0.2)
            return super().num_pending(text)

    text = io.StringIO()
    stream = MaskedStream(text)
    stream.write("refused: open-sesame")
    monkeypatch.setattr(secrets, "_masker", Slow([SECRET]))
    first = Thread(target=stream.write, args=["-4711\n"])
    first.start()
    begun.wait()
    stream.write("step 2\n")
    other_has_written.set()
    first.join()
    stream.end()

    assert text.getvalue() == "refused: ****\nstep 2\n"
