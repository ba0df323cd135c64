"""What clients send by mistake, files that are lost, and a second server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from safetensors.torch import load_file, save_file
from trinity.common.ports import GenerationRequest
from trinity.errors import DataError, ModelError
from trinity_tinker.base_model import BaseModel
from trinity_tinker.expiry import ServiceTimes
from trinity_tinker.kills import Kills
from trinity_tinker.run_scheduler import RunScheduler
from trinity_tinker.samplers import Samplers
from trinity_tinker.sampling import Sampling
from trinity_tinker.server import TinkerServer

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}
NORMS = "SELECT summary FROM requests WHERE kind = 'optim_step' AND form = 'json' ORDER BY made"


def saved(client, model, seq, route="/save_weights", **fields):
    body = {"model_id": model, "seq_id": seq, **fields}
    return client.wait(client.post(route, body)["request_id"])


def loss_of(client, model, seq):
    request = client.backward(model, seq, [DATUM], forward_only=True)
    return client.output(request).metrics["loss:sum"]


def trained(client, model):
    client.output(client.backward(model, 1, [DATUM]))
    client.wait(client.step(model, 2))


def test_a_run_whose_state_is_lost_does_not_go_on_with_an_untrained_adapter(
    base, tmp_path, make_client
):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    model = client.model(client.session())
    trained(client, model)
    server.close()
    shutil.rmtree(tmp_path / "data/runs")
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    found = [client.answer(client.backward(model, seq, [DATUM])) for seq in (3, 4)]
    server.close()

    assert ["error" in answer.text for answer in found] == [True, True]


def test_a_run_that_could_not_begin_leaves_the_others_alone(base, tmp_path, make_client):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY], max_models=1)
    client = make_client(server.base_url)
    session = client.session()
    model = client.model(session)
    path = saved(client, model, 1, path="one")["path"]
    for file in (tmp_path / "data/checkpoints").rglob("*.safetensors"):
        file.unlink()
    body = {"session_id": session, "model_seq_id": 1, "path": path, "optimizer": False}
    broken = client.answer(client.post("/load_weights", body)["request_id"])
    after = client.answer(client.backward(model, 2, [DATUM]))
    server.close()

    assert "error" in broken.text
    assert after.headers["content-type"] == "application/x-protobuf", after.text


def test_a_step_whose_state_cannot_be_written_is_not_made(client, tmp_path):
    model = client.model(client.session())
    client.output(client.backward(model, 1, [DATUM]))
    before = loss_of(client, model, 2)
    folder = tmp_path / "data/runs" / model.replace(":", "%3A")
    folder.parent.mkdir()
    folder.write_text("in the way")
    failed = client.answer(client.step(model, 3)).json()
    folder.unlink()

    assert failed["category"] == "server"
    assert loss_of(client, model, 4) == before
    client.wait(client.step(model, 5))  # the gradient is still there
    assert loss_of(client, model, 6) < before


def test_a_run_keeps_its_alpha_where_the_server_starts_with_another(base, tmp_path, make_client):
    losses = []
    for alpha in (32, 8):
        server = TinkerServer([base], tmp_path / "data", keys=[KEY], alpha=alpha)
        client = make_client(server.base_url)
        if not losses:
            model = client.model(client.session())
            trained(client, model)
        losses.append(loss_of(client, model, 3 + len(losses)))
        server.close()

    assert losses[0] == losses[1]


def test_a_second_server_on_a_folder_is_refused(server, base, tmp_path):
    with pytest.raises(DataError, match="another server uses"):
        TinkerServer([base], tmp_path / "data", keys=[KEY])


def test_a_checkpoint_that_is_written_anew_is_sampled_as_it_is_now(client):
    session = client.session()
    model = client.model(session)
    path = saved(client, model, 1, path="one")["path"]
    body = {"session_id": session, "sampling_session_seq_id": 0, "model_path": path}
    sampling = client.post("/create_sampling_session", body)["sampling_session_id"]

    def scores(seq):
        request = client.sample(sampling, seq, TOKENS, prompt_logprobs=True)
        return client.output(request, "SampleResponse").prompt_logprobs

    first = scores(1)
    client.output(client.backward(model, 2, [DATUM]))
    client.wait(client.step(model, 3))
    saved(client, model, 4, path="one", overwrite=True)

    assert scores(2) != first


def test_weights_of_a_sampling_session_are_not_replaced(client):
    model = client.model(client.session())
    path = "/save_weights_for_sampler"
    saved(client, model, 1, path, sampling_session_seq_id=7)
    body = {"model_id": model, "seq_id": 2, "sampling_session_seq_id": 7}

    assert "exists" in client.error(client.post(path, body)["request_id"])


def test_an_adapter_that_is_in_use_makes_no_room_for_another(client, base, tmp_path):
    model = client.model(client.session())
    for seq, name in enumerate(("one", "two", "three"), 1):
        saved(client, model, seq, path=name)
    folders = tmp_path / "data/checkpoints" / quote(model, safe="") / "weights"
    samplers = Samplers(max_adapters=1)

    def sampler(name):
        return samplers.of_checkpoint(folders / name, base, made=1.0)

    first, second = sampler("one"), sampler("two")
    assert sampler("one") is first
    for one in (first, second, first):
        samplers.release(one)
    sampler("three")
    known = {one.adapter: one.adapter in one.sampled.adapters for one in (first, second)}
    assert known == {first.adapter: False, second.adapter: False}
    assert sampler("one") is not first
    samplers.close()


def test_a_checkpoint_that_is_deleted_while_it_is_sampled_is_let_go_of_afterwards(
    client, base, tmp_path
):
    model = client.model(client.session())
    saved(client, model, 1, path="one")
    (folder,) = (tmp_path / "data/checkpoints").glob("*/weights/one")
    samplers = Samplers(max_adapters=4)
    sampler = samplers.of_checkpoint(folder, base, made=1.0)
    samplers.forget(folder)
    request = GenerationRequest(prompt_token_ids=tuple(TOKENS), max_new_tokens=2)

    assert len(sampler.submit(request).result(60)) == 1
    samplers.release(sampler)
    with pytest.raises(ModelError, match="weights/one"):
        sampler.submit(request)
    samplers.close()


def test_a_reply_ends_while_the_adapter_of_another_run_is_being_read(client, base, tmp_path):
    """The thread that ends replies also answers all polls."""
    model = client.model(client.session())
    for seq, name in enumerate(("one", "two"), 1):
        saved(client, model, seq, path=name)
    (folders,) = (tmp_path / "data/checkpoints").glob("*/weights")
    config = folders / "two" / "adapter" / "adapter_config.json"
    text = config.read_bytes()
    config.unlink()
    os.mkfifo(config)  # whose reader waits
    samplers = Samplers(max_adapters=4)
    first = samplers.of_checkpoint(folders / "one", base, made=1.0)
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(samplers.of_checkpoint, folders / "two", base, made=1.0)
        with config.open("wb") as pipe:
            threads.submit(samplers.release, first).result(10)
            pipe.write(text)
        second = reading.result(60)
    assert (first.num_users, second.num_users) == (0, 1)
    samplers.close()


def test_inflight_weights_are_published_though_the_clock_was_set_back(
    client, base, tmp_path, monkeypatch
):
    model = client.model(client.session())
    saving = ("/save_weights_for_sampler",)
    first = saved(client, model, 1, *saving, sampling_session_seq_id=0, kind="inflight")
    scores = []

    def score(seq):
        session = first["sampling_session_id"]
        request = client.sample(session, seq, TOKENS, prompt_logprobs=True)
        scores.append(client.output(request, "SampleResponse").prompt_logprobs)

    score(1)
    client.output(client.backward(model, 2, [DATUM]))
    client.wait(client.step(model, 3))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600.0)
    saved(client, model, 4, *saving, sampling_session_seq_id=1, kind="inflight")
    score(2)
    assert scores[0] != scores[1]


@pytest.mark.parametrize("name", ["ж" * 200, "." * 200, "..", "a b%?#", "雪" * 100], ids=len)
def test_a_checkpoint_may_have_any_name(client, tmp_path, name):
    model = client.model(client.session())
    path = saved(client, model, 1, path=name)["path"]
    body = {"model_id": model, "seq_id": 2, "path": path, "optimizer": True}

    assert path == f"tinker://{model}/weights/{name}"
    assert client.wait(client.post("/load_weights", body)["request_id"])["path"] == path
    assert len(list((tmp_path / "data/checkpoints").glob("*/weights/*/optimizer.pt"))) == 1


@pytest.mark.parametrize("name", [5, "\ud800", "a/b", ""], ids=ascii)
def test_what_is_no_name_of_a_checkpoint_is_refused(client, name):
    model = client.model(client.session())
    body = json.dumps({"model_id": model, "seq_id": 1, "path": name})
    request = client.http.post("/save_weights", content=body).json()["request_id"]

    assert "of a checkpoint is" in client.error(request)


def test_a_link_that_is_wrong_or_of_a_deleted_checkpoint_is_not_found(client):
    model = client.model(client.session())
    saved(client, model, 1, "/save_weights_external", path="one")
    path = f"/training_runs/{model}/checkpoints/external_weights/one"
    urls = client.http.get(path + "/external_weights_urls").json()["urls"]
    url = urls["adapter/adapter_config.json"]
    found = [client.http.get(url).status_code]
    found.append(client.http.get(url.replace("/files/", "/files/9")).status_code)
    found.append(client.http.get("/files/99999999999.%C3%A9/x").status_code)
    found.append(client.http.get("/files/99999999999.ab/..%2F..%2Ftinker.db").status_code)
    client.http.delete(path)
    found.append(client.http.get(url).status_code)

    assert found == [200, 404, 404, 404, 404]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/asample", {"seq_id": 1, "num_samples": 10**9}),
        ("/asample", {"seq_id": 2**63}),
        ("/asample", {"seq_id": True}),
        ("/asample", {"seq_id": 1, "sampling_session_id": ["a"]}),
        ("/create_sampling_session", {"sampling_session_seq_id": 2**70, "base_model": NAME}),
        ("/create_sampling_session", {"sampling_session_seq_id": 1, "model_path": ["a"]}),
        ("/create_model", {"model_seq_id": -1}),
    ],
)
def test_a_number_that_cannot_be_is_refused_when_it_is_sent(client, path, body):
    session = client.session()
    if path == "/asample":
        made = {"session_id": session, "sampling_session_seq_id": 0, "base_model": NAME}
        sampling = client.post("/create_sampling_session", made)["sampling_session_id"]
        prompt = {"chunks": [{"tokens": TOKENS}]}
        body = {"sampling_session_id": sampling, "prompt": prompt, "sampling_params": {}, **body}
    else:
        body = {"session_id": session, **body}
    client.post(path, body, status=422)


def test_json_without_end_is_refused(client):
    answer = client.http.post("/create_session", content="[" * 100_000)

    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"topk_prompt_logprobs": 10**9}, "topk_prompt_logprobs is 1000000000"),
        ({"topk_sample_logprobs": 1.5}, "topk_sample_logprobs is 1.5"),
        ({"prompt_logprobs": True, "prompt_logprobs_last_n": "2"}, "prompt_logprobs_last_n is 2"),
        ({"prompt": {"chunks": "text"}}, "no list of objects"),
        ({"prompt": {"chunks": [{"tokens": "text"}]}}, "no list of token ids"),
        ({"prompt": {"chunks": [{"tokens": [10**6]}]}}, "1000000"),
        ({"params": {"stop": 5}}, "stop is 5"),
        ({"params": {"top_k": "x"}}, "top_k is 'x'"),
        ({"params": {"max_tokens": "x"}}, "max_tokens is 'x'"),
    ],
)
def test_what_a_sample_cannot_be_asked_for_is_named(client, fields, told):
    session = client.session()
    made = {"session_id": session, "sampling_session_seq_id": 0, "base_model": NAME}
    sampling = client.post("/create_sampling_session", made)["sampling_session_id"]

    assert told in client.error(client.sample(sampling, 1, TOKENS, **fields))


@pytest.mark.parametrize(
    ("lora", "told"), [({"rank": 10**9}, "rank is 1000000000"), ({"seed": "x"}, "seed is 'x'")]
)
def test_an_adapter_that_cannot_be_is_refused(client, lora, told):
    assert told in client.error(client.create(client.session(), **lora))


def test_a_request_that_waits_for_one_that_was_not_sent_says_so(client):
    model = client.model(client.session())
    late = client.backward(model, 3, [DATUM])
    told = client.poll(late).json()
    client.output(client.backward(model, 1, [DATUM]))
    client.output(client.backward(model, 2, [DATUM]))

    assert told["queue_state_reason"] == f"request 3 of {model} waits for request 1, still missing"
    assert client.output(late).metrics["loss:sum"] > 0


def test_a_pass_without_gradients_is_not_kept_to_be_made_again(client, tmp_path):
    model = client.model(client.session())
    loss_of(client, model, 1)
    client.output(client.backward(model, 2, [DATUM]))
    with closing(sqlite3.connect(tmp_path / "data/tinker.db")) as journal:
        query = "SELECT body IS NULL FROM requests WHERE scope = ? AND seq > 0 ORDER BY seq"
        found = [row[0] for row in journal.execute(query, (model,))]

    assert found == [1, 0]


def test_nothing_is_done_after_a_result_that_could_not_be_noted(base, tmp_path, make_client):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    model = client.model(client.session())
    with closing(sqlite3.connect(tmp_path / "data/tinker.db")) as journal:
        journal.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF result ON requests WHEN OLD.seq = 1 "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        requests = [client.backward(model, seq, [DATUM]) for seq in (1, 2)]
        told = [client.answer(request).json()["error"] for request in requests]
        server.close()
        journal.execute("DROP TRIGGER full")
        journal.commit()
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    losses = [client.output(request).metrics["loss:sum"] for request in requests]
    server.close()

    assert ["the disk is full" in one for one in told] == [True, True]
    assert losses[0] == losses[1]


def test_a_task_that_fails_between_requests_ends_nothing():
    done = []
    scheduler = RunScheduler(
        done.append, give_up=lambda late, missing: None, next_seq=lambda scope: 0, gap_s=60.0
    )
    scheduler.post(lambda: 1 / 0)
    scheduler.add(SimpleNamespace(scope="a", seq=0))
    scheduler.add(SimpleNamespace(scope="a", seq=1))
    while len(done) < 2 and scheduler._thread.is_alive():
        scheduler._thread.join(0.01)
    scheduler.close()

    assert [request.seq for request in done] == [0, 1]


def test_what_follows_a_request_that_never_comes_fails_by_name_and_the_run_goes_on(
    base, tmp_path, make_client
):
    for turn in range(2):
        times = ServiceTimes(gap_s=0.5, holds_s=2.0)
        server = TinkerServer([base], tmp_path / "data", keys=[KEY], times=times)
        client = make_client(server.base_url)
        if not turn:
            model = client.model(client.session())
        first = 10 * turn + 1
        late = [client.backward(model, first + 1, [DATUM]), client.step(model, first + 3)]
        told = [client.error(request) for request in late]
        told.append(client.error(client.backward(model, first, [DATUM])))
        loss = loss_of(client, model, first + 4)
        server.close()
        if not turn:
            expected = loss
            client_of_gap = told

    assert f"request 2 of {model} was not executed: request 1, which it" in client_of_gap[0]
    assert "did not arrive within 0.5 s. Gradients since the last" in client_of_gap[0]
    assert f"request 4 of {model} was not executed: request 1" in client_of_gap[1]
    assert f"request 1 of {model} arrived too late" in client_of_gap[2]
    assert "request 12" in told[0]
    assert "request 6, which it" in told[0]  # the number behind the last one that was done
    assert loss == expected  # nothing was trained


def test_a_batch_that_is_sent_again_after_a_gap_is_trained_once(base, tmp_path, make_client):
    times = ServiceTimes(gap_s=0.3, holds_s=2.0)
    server = TinkerServer([base], tmp_path / "data", keys=[KEY], times=times)
    client = make_client(server.base_url)
    session, losses = client.session(), []
    for number, has_gap in enumerate((False, True)):
        model, seq = client.model(session, number), 1
        if has_gap:
            client.output(client.backward(model, 1, [DATUM]))
            told = client.error(client.step(model, 3))  # its second pass never comes
            seq = 4
        for _ in range(2):
            client.output(client.backward(model, seq, [DATUM]))
            seq += 1
        client.wait(client.step(model, seq, grad_clip_norm=0.0))
        losses.append(loss_of(client, model, seq + 1))
    norms = [row["summary"] for row in server._service.store.rows(NORMS)]
    server.close()

    assert "Gradients since the last optim_step are dropped" in told
    assert losses[0] == losses[1]
    assert norms[0] == norms[1]


def test_a_run_that_waits_for_a_lost_request_is_told_beside_one_that_is_always_busy():
    lost, turns = [], []

    def do(request):
        turns.append(request.scope)
        if request.scope == "busy" and not lost and len(turns) < 2000:
            scheduler.add(SimpleNamespace(scope="busy", seq=request.seq + 1))
            threading.Event().wait(0.001)

    scheduler = RunScheduler(
        do, give_up=lambda late, missing: lost.append(missing), next_seq=lambda _: 0, gap_s=0.02
    )
    scheduler.add(SimpleNamespace(scope="waits", seq=1))
    scheduler.add(SimpleNamespace(scope="busy", seq=0))
    while not lost and len(turns) < 2000:
        scheduler._thread.join(0.01)
    scheduler.close()

    assert lost == [0]
    assert len(turns) < 2000  # it was told while the other went on


def test_other_weights_under_the_name_of_a_base_model_are_refused(
    base, models, tmp_path, make_client
):
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    client = make_client(server.base_url)
    client.model(client.session())
    server.close()
    weights = load_file(models / NAME / "model.safetensors")
    shutil.copytree(models / NAME, tmp_path / "other")
    first = sorted(weights)[0]
    save_file({**weights, first: weights[first] + 1}, tmp_path / "other/model.safetensors")
    other, same = (BaseModel(NAME, str(path)) for path in (tmp_path / "other", models / NAME))
    with pytest.raises(DataError, match=f"--model {NAME} has other weights.*another --data"):
        TinkerServer([other], tmp_path / "data", keys=[KEY])
    TinkerServer([same], tmp_path / "data", keys=[KEY]).close()
    TinkerServer([other], tmp_path / "new", keys=[KEY]).close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_sample_that_two_kills_left_without_an_answer_is_not_begun_again(
    base, tmp_path, make_client, monkeypatch, is_killed
):
    begun = threading.Semaphore(0)

    async def never(sampling, request):
        begun.release()
        await asyncio.Event().wait()

    with monkeypatch.context() as without_answers:
        without_answers.setattr(Sampling, "run", never)
        if is_killed:
            without_answers.setattr(Kills, "note_end", lambda kills, **how: None)
        for turn in range(2):
            server = TinkerServer([base], tmp_path / "data", keys=[KEY])
            if not turn:
                client = make_client(server.base_url)
                body = {"session_id": client.session(), "sampling_session_seq_id": 0}
                made = client.post("/create_sampling_session", {**body, "base_model": NAME})
                request = client.sample(made["sampling_session_id"], 1, TOKENS)
            assert begun.acquire(timeout=30)
            server.close()
    server = TinkerServer([base], tmp_path / "data", keys=[KEY])
    answer = make_client(server.base_url).answer(request)
    server.close()

    if is_killed:
        assert answer.json()["category"] == "server"
        assert "killed 2 times before this request was answered" in answer.json()["error"]
    else:
        assert answer.headers["content-type"] == "application/x-protobuf", answer.text
