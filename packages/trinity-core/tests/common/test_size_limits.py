"""What a plugin or a server gives without bounds is refused at one limit, which is said."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
import tracemalloc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from trinity.common.experience import Experience
from trinity.common.models.auxiliary import ExternalModel, wrapper_of
from trinity.common.rewards import RewardFn
from trinity.common.rewards.calling import scores_of
from trinity.common.value_checks import MAX_INFO, MAX_MESSAGE, MAX_REPLY, check_info
from trinity.common.workflows.workflow import reward_of
from trinity.errors import WorkflowError
from trinity.explorer.failure import failure_of, traceback_text
from trinity.runtime.record.samples import _json as json_of

MB = 10**6


@contextmanager
def at_most(*, megabytes):
    """Fail if the block holds more memory at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * MB
    finally:
        tracemalloc.stop()


def test_a_wrong_reward_of_20_mb_is_shown_by_its_beginning() -> None:
    long = "x" * (20 * MB)

    with at_most(megabytes=1), pytest.raises(WorkflowError) as raised:
        reward_of(long, what="reward")

    assert str(raised.value).startswith("reward is 'xxxxxxx")
    assert len(str(raised.value)) < 300


class GivesText(RewardFn):
    def __call__(self, response, **kwargs):
        return {"score": response}


def test_a_score_of_20_mb_of_text_is_no_error_of_20_mb() -> None:
    offered = {"response": "x" * (20 * MB), "truth": None, "prompt": ""}

    with pytest.raises(WorkflowError) as raised:
        scores_of(GivesText(), offered=offered, options={})

    assert "could not convert string to float: 'xxx" in str(raised.value)
    assert "more letters)" in str(raised.value)
    assert len(str(raised.value)) < 2 * MAX_MESSAGE
    assert len(traceback_text(raised.value)) < 5 * MAX_MESSAGE


def test_an_error_of_20_mb_is_told_by_its_beginning(a_request) -> None:
    try:
        raise RuntimeError("y" * (20 * MB))
    except RuntimeError as error:
        began = time.perf_counter()
        with at_most(megabytes=1):
            text = traceback_text(error)
            failure = failure_of(error, request=a_request, attempt=1)

    assert time.perf_counter() - began < 1
    assert failure.message.endswith("(19,996,000 more letters)")
    assert len(text) < 2 * MAX_MESSAGE


def test_info_that_would_fill_the_disk_is_refused_with_the_name_of_its_largest_entry() -> None:
    info = {"note": "short", "page": ["z" * MB] * 5}

    with pytest.raises(
        WorkflowError, match=r"row 3: info has more than 4 MB, most of it in 'page'"
    ):
        check_info(info, what="row 3")

    check_info({"page": "z" * (MAX_INFO - 100)}, what="row 3")


def test_info_without_an_end_is_refused() -> None:
    info: dict = {}
    info["itself"] = [info]

    with pytest.raises(WorkflowError, match="most of it in 'itself'"):
        check_info(info, what="row 0")


@contextmanager
def a_judge(reply: bytes, **headers: str):
    """Answer each request with the reply, as often as it is read."""

    class Judge(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            try:
                self.wfile.write(reply)
            except OSError:
                self.close_connection = True

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    model = ExternalModel.at(
        f"http://127.0.0.1:{server.server_port}/v1", api_key="none", name="judge"
    )
    try:
        yield model
    finally:
        model.close()
        server.shutdown()
        server.server_close()


LONG = b'{"choices": [{"message": {"content": "' + b"a" * (60 * MB) + b'"}}]}'
ASKED = {"model": "judge", "messages": [{"role": "user", "content": "hi"}]}


def asked(judge, *, is_async):
    client = wrapper_of(judge.client).get_openai_async_client() if is_async else judge.client
    reply = client.with_options(max_retries=0).chat.completions.create(**ASKED)
    return asyncio.run(awaited(reply)) if is_async else reply


async def awaited(reply):
    return await reply


@pytest.mark.parametrize("is_async", [False, True])
def test_a_judge_that_replies_with_60_mb_is_cut_off_with_a_reason(is_async, a_request) -> None:
    with a_judge(LONG) as judge, at_most(megabytes=3 * MAX_REPLY / MB):
        with pytest.raises(Exception, match=r"more than|Connection error") as raised:
            asked(judge, is_async=is_async)
        failure = failure_of(raised.value, request=a_request, attempt=1)

    assert "the reply of the server has more than 16,000,000 bytes" in failure.message


def test_a_compressed_reply_is_cut_off_sooner(a_request) -> None:
    packed = gzip.compress(LONG[:-4] + b"\n".join(b"%d" % n for n in range(400_000)), 1)
    with a_judge(packed, Content_Encoding="gzip") as judge:
        with pytest.raises(Exception, match=r"more than|Connection error") as raised:
            judge.client.with_options(max_retries=0).chat.completions.create(**ASKED)
        failure = failure_of(raised.value, request=a_request, attempt=1)

    assert "the reply of the server has more than 250,000 bytes" in failure.message


def test_a_reply_within_the_limit_is_read(a_request) -> None:
    reply = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "7"}}]}'
    with a_judge(reply) as judge:
        answer = judge.client.chat.completions.create(**ASKED)

    assert answer.choices[0].message.content == "7"


@pytest.fixture
def a_request():
    from trinity.common.workflows import Workflow
    from trinity.explorer.requests import requests_of
    from trinity_testing.builders import a_task

    class Some(Workflow):
        def run(self):
            return [Experience(tokens=[1, 2], prompt_length=1, reward=1.0)]

    (request,) = requests_of(a_task(workflow=Some), batch="1", number=0, max_repeat_times=None)
    return request


class Huge:
    def __repr__(self):
        return "x" * (20 * MB)


def test_an_object_in_info_whose_text_has_20_mb_is_stored_by_its_beginning() -> None:
    experience = Experience(tokens=[1, 2], prompt_length=1, reward=1.0, info={"said": [Huge()]})

    assert len(Experience.serialize_many([experience])) < 3 * MAX_MESSAGE
    assert len(json_of({"info": {"said": Huge()}})) < 3 * MAX_MESSAGE
