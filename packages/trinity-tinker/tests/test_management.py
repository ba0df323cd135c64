"""Clients list what they made, fetch it, let it end and delete it; nobody else sees it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from trinity_tinker.expiry import ServiceTimes
from trinity_tinker.server import TinkerServer

KEY, OTHER = "tml-of-a-test", "tml-of-another"
TOKENS = [71, 104, 101, 32, 113]
DATUM = {"tokens": TOKENS[:-1], "target_tokens": TOKENS[1:], "weights": [1.0] * 4}


@pytest.fixture
def server(base, tmp_path):
    made = TinkerServer(
        [base], tmp_path / "data", keys=[KEY, OTHER], times=ServiceTimes(holds_s=2.0)
    )
    yield made
    made.close()


@pytest.fixture
def run(client):
    """Return a run that has a checkpoint of each kind."""
    model = client.model(client.session())
    for seq, (path, fields) in enumerate(
        (
            ("/save_weights", {"user_metadata": {"step": "1"}}),
            ("/save_weights_for_sampler", {}),
            ("/save_weights_external", {}),
        ),
        start=1,
    ):
        body = {"model_id": model, "seq_id": seq, "path": "one", **fields}
        client.wait(client.post(path, body)["request_id"])
    return model


def got(client, path, **params):
    answer = client.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_are_listed_newest_first_a_page_at_a_time(client):
    session = client.session()
    models = [client.model(session, number) for number in range(3)]
    page = got(client, "/training_runs", limit=2, offset=1)

    assert [one["training_run_id"] for one in page["training_runs"]] == [models[1], models[0]]
    assert page["cursor"] == {"offset": 1, "limit": 2, "total_count": 3}
    assert page["training_runs"][0]["base_model"] == "Qwen/Tiny"
    assert page["training_runs"][0]["lora_rank"] == 4


def test_a_run_shows_its_last_checkpoints(client, run):
    shown = got(client, f"/training_runs/{run}")

    assert shown["last_checkpoint"]["tinker_path"] == f"tinker://{run}/weights/one"
    assert shown["last_sampler_checkpoint"]["checkpoint_id"] == "sampler_weights/one"


@pytest.mark.parametrize("path", ["/checkpoints", "/training_runs/{run}/checkpoints"])
def test_checkpoints_are_listed_with_kind_and_size(client, run, path):
    found = got(client, path.format(run=run))["checkpoints"]

    by_kind = {one["checkpoint_type"]: one for one in found}
    assert sorted(by_kind) == ["external", "sampler", "training"]
    assert by_kind["training"]["user_metadata"] == {"step": "1"}
    # the state of the optimizer holds two numbers for each of the adapter's
    assert by_kind["training"]["size_bytes"] > by_kind["sampler"]["size_bytes"] > 0
    assert by_kind["training"]["expires_at"] is None


def test_a_checkpoint_tells_what_it_is_of(client, run):
    info = client.post("/weights_info", {"tinker_path": f"tinker://{run}/weights/one"})

    assert info == {
        "base_model": "Qwen/Tiny",
        "is_lora": True,
        "lora_rank": 4,
        "train_unembed": True,
        "train_mlp": True,
        "train_attn": True,
    }


def test_a_deleted_checkpoint_is_gone_with_its_files(client, run, tmp_path):
    path = f"/training_runs/{run}/checkpoints/weights/one"
    files = list((tmp_path / "data/checkpoints").glob("*/weights/one/optimizer.pt"))
    answer = client.http.delete(path)
    again = client.http.delete(path)

    assert len(files) == 1
    assert not files[0].exists()
    assert answer.status_code == 204
    assert again.status_code == 404
    body = {"model_id": run, "seq_id": 4, "path": f"tinker://{run}/weights/one"}
    loading = client.post("/load_weights", {**body, "optimizer": True})["request_id"]
    assert "no checkpoint" in client.error(loading)


def test_a_checkpoint_ends_when_its_time_is_over(client, run, monkeypatch):
    path = f"/training_runs/{run}/checkpoints/weights/one"
    short = client.http.put(path + "/ttl", json={"ttl_seconds": 60})
    hour = client.http.put(path + "/ttl", json={"ttl_seconds": 3600})
    (shown,) = (
        one
        for one in got(client, "/checkpoints")["checkpoints"]
        if one["checkpoint_type"] == "training"
    )
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)
    body = {"model_id": run, "seq_id": 4, "path": f"tinker://{run}/weights/one"}
    loading = client.post("/load_weights", {**body, "optimizer": True})["request_id"]

    assert short.status_code == 422
    assert hour.status_code == 204
    assert shown["expires_at"] is not None
    assert "no checkpoint" in client.error(loading)


def test_the_files_of_a_checkpoint_are_fetched_by_links_without_a_key(client, run):
    import httpx

    found = got(
        client, f"/training_runs/{run}/checkpoints/external_weights/one/external_weights_urls"
    )
    urls = found["urls"]
    config = httpx.get(urls["adapter/adapter_config.json"])
    changed = httpx.get(urls["adapter/adapter_config.json"].replace("config", "model"))

    assert sorted(urls) == ["adapter/adapter_config.json", "adapter/adapter_model.safetensors"]
    assert config.json()["r"] == 4
    assert changed.status_code == 404


def test_a_session_lists_its_runs_and_samplers(client, run):
    session = run.partition(":")[0]
    body = {"session_id": session, "sampling_session_seq_id": 5, "base_model": "Qwen/Tiny"}
    sampler = client.post("/create_sampling_session", body)["sampling_session_id"]

    assert session in got(client, "/sessions")["sessions"]
    shown = got(client, f"/sessions/{session}")
    assert shown["training_run_ids"] == [run]
    assert shown["sampler_ids"] == [sampler]
    assert got(client, f"/samplers/{sampler}")["base_model"] == "Qwen/Tiny"


def test_clones_of_a_sampling_session_get_numbers_of_their_own(client, run):
    session = run.partition(":")[0]
    body = {"session_id": session, "sampling_session_seq_id": 5, "base_model": "Qwen/Tiny"}
    sampler = client.post("/create_sampling_session", body)["sampling_session_id"]
    joined = [
        client.post("/join_sampling_session", {"sampling_session_id": sampler})["client_counter"]
        for _ in range(2)
    ]

    assert joined == [1, 2]
    assert client.post("/client/config", {"sdk_version": "0.38.0"})["sample_join_sampling_session"]


@pytest.mark.parametrize("clone", [3, 10**9])
def test_a_clone_of_a_sampling_client_samples_with_the_numbers_that_it_counts(client, run, clone):
    """The SDK numbers the requests of a clone from 10**9 times its own number, up to 10**18."""
    session = run.partition(":")[0]
    body = {"session_id": session, "sampling_session_seq_id": 5, "base_model": "Qwen/Tiny"}
    sampler = client.post("/create_sampling_session", body)["sampling_session_id"]
    numbers = [clone * 10**9, clone * 10**9 + 1]
    sent = [client.sample(sampler, number, [71, 104]) for number in numbers]

    answers = [client.output(request, "SampleResponse") for request in sent]
    assert [len(answer.sequences) for answer in answers] == [1, 1]


def test_a_finished_session_has_no_heartbeat(client):
    session = client.session()
    client.post("/session_heartbeat", {"session_id": session})
    client.post(f"/sessions/{session}/finish", {"reason": {"type": "success"}, "detail": None})

    assert client.post("/session_heartbeat", {"session_id": session}, status=410)


def test_a_run_that_could_not_be_made_is_not_found(client):
    session = client.session()
    client.error(client.create(session, rank=0))
    answer = client.http.get(f"/training_runs/{session}:train:0")

    assert answer.status_code == 404
    assert "is not made yet, or could not be made" in answer.json()["detail"]


def test_another_key_sees_nothing_of_it(server, client, run, make_client):
    other = make_client(server.base_url, key=OTHER)
    session = run.partition(":")[0]
    gets = [
        f"/training_runs/{run}",
        f"/training_runs/{run}/checkpoints",
        f"/sessions/{session}",
        f"/training_runs/{run}/checkpoints/weights/one/external_weights_urls",
    ]

    assert [other.http.get(path).status_code for path in gets] == [404] * 4
    assert got(other, "/training_runs")["training_runs"] == []
    assert got(other, "/checkpoints")["checkpoints"] == []
    assert got(other, "/sessions")["sessions"] == []
    assert other.http.delete(f"/training_runs/{run}/checkpoints/weights/one").status_code == 404
    request = client.backward(run, 4, [DATUM])
    assert other.post("/retrieve_future", {"request_id": request}, status=404)
    assert other.post("/get_info", {"model_id": run}, status=404)
    assert other.post("/optim_step", {"model_id": run, "seq_id": 5, "adam_params": {}}, status=404)
    body = {"session_id": other.session(), "model_seq_id": 0, "optimizer": False}
    loading = other.post("/load_weights", {**body, "path": f"tinker://{run}/weights/one"})
    assert "no checkpoint" in other.error(loading["request_id"])


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("POST", "/training_runs/{run}/checkpoints/weights/one/publish", "publish"),
        ("DELETE", "/training_runs/{run}/checkpoints/weights/one/publish", "publish"),
        ("PUT", "/sessions/s/project", "projects"),
        ("GET", "/sessions/s/trace_export", "trace_export"),
        ("GET", "/audit", "audit"),
        ("GET", "/billing/usage/events", "billing"),
        ("POST", "/create_custom_loss", "custom losses"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(client, method, path, told):
    answer = client.http.request(method, path.format(run="r"))

    assert answer.status_code == 422
    assert told in answer.json()["detail"]


def test_a_path_that_is_not_known_is_named(client):
    answer = client.http.post("/colour", json={})

    assert answer.status_code == 404
    assert "POST /api/v1/colour" in answer.json()["detail"]


def test_encrypted_exports_are_refused(client, run):
    body = {"model_id": run, "seq_id": 4, "path": "two", "age_encryption_recipients": ["age1x"]}
    request = client.post("/save_weights_external", body)["request_id"]

    assert "age_encryption_recipients" in client.error(request)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"keeps_results_s": 0.0}, "it was retrieved"),
        ({"keeps_unfetched_s": 0.0}, "nobody fetched it within 0 s"),
    ],
)
def test_a_result_is_dropped_after_a_while_which_is_told(
    base, tmp_path, make_client, monkeypatch, caplog, times, told
):
    monkeypatch.setattr("trinity_tinker.expiry._EVERY_S", 0.0)
    server = TinkerServer([base], tmp_path / "data", keys=[KEY], times=ServiceTimes(**times))
    client = make_client(server.base_url)
    first = client.create(client.session())
    if "keeps_results_s" in times:
        client.wait(first)
    second = client.create(client.session())
    client.http.post("/retrieve_future", json={"request_id": second})
    client.create(client.session())
    answer = client.http.post("/retrieve_future", json={"request_id": first})
    server.close()

    assert answer.status_code == 410
    assert told in answer.json()["detail"]
    assert ("that no client fetched for 0 s" in caplog.text) == ("keeps_unfetched_s" in times)


def test_sessions_are_found_by_name_metadata_and_state_a_page_at_a_time(client, run):
    made = {}
    for name, kind in (("First try", "a"), ("second try", "b"), ("third", "b")):
        body = {"tags": [], "display_name": name, "user_metadata": {"kind": kind}}
        made[name] = client.post("/create_session", body)["session_id"]
    client.post(f"/sessions/{made['third']}/finish", {"reason": {"type": "errored"}})

    def found(**body):
        answer = client.post("/sessions/search", body)
        return [one["display_name"] for one in answer["sessions"]], answer["next_cursor"]

    errored = {"type": "client_finished", "reasons": ["errored"]}
    assert found(display_name="TRY")[0] == ["second try", "First try"]
    assert found(user_metadata={"kind": "b"})[0] == ["third", "second try"]
    assert found(statuses=[errored])[0] == ["third"]
    assert found(statuses=[{"type": "active", "reasons": ["errored"]}])[0] == []
    assert found(statuses=[{**errored, "reasons": 5}])[0] == []
    assert found(statuses=[{"type": "active"}], user_metadata={"kind": "b"})[0] == ["second try"]
    assert found(session_id=made["third"], display_name="second")[0] == ["third", "second try"]
    first, cursor = found(limit=2)
    assert first + found(limit=9, cursor=cursor)[0] == ["third", "second try", "First try", None]
    assert cursor["last_session_id"] == made["second try"]
    (own,) = client.post("/sessions/search", {"session_id": run.partition(":")[0]})["sessions"]
    assert own["checkpoints_count"] == 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"project_ids": ["p"]}, "projects are not"),
        ({"owner": {"type": "accessible"}}, "finds its own"),
        ({"limit": 0}, "limit is 0"),
        ({"cursor": {"last_session_id": "x"}}, "session 'x'"),
        ({"statuses": "all"}, "no list"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(client, body, told):
    assert told in client.post("/sessions/search", body, status=422)["detail"]


def test_a_checkpoint_is_copied_once_to_a_session_and_can_be_loaded(client, run, make_client):
    session = client.session()
    body = {"session_id": session, "model_seq_id": 3}
    body["source_path"] = f"tinker://{run}/weights/one"
    with ThreadPoolExecutor(6) as threads:  # a client that has waited too long asks again
        answers = list(threads.map(lambda _: client.post("/copy_weights", body), range(6)))
    client.http.delete(f"/training_runs/{session}:train:3/checkpoints/weights/one")
    answers.append(client.post("/copy_weights", body))  # what is gone is copied anew
    paths = [answer["tinker_path"] for answer in answers]
    client.http.delete(f"/training_runs/{run}/checkpoints/weights/one")
    loading = {"session_id": session, "model_seq_id": 4, "path": paths[0], "optimizer": True}
    client.wait(client.post("/load_weights", loading)["request_id"])

    assert paths == [f"tinker://{session}:train:3/weights/one"] * 7
    body["source_path"] = f"tinker://{run}/sampler_weights/one"
    assert "is a run already" in client.post("/copy_weights", body, status=422)["detail"]
    refused = client.post("/copy_weights", {**body, "destination_project_id": "p"}, status=422)
    assert "destination_project_id" in refused["detail"]
    assert (
        "no checkpoint"
        in client.post("/copy_weights", {**body, "source_path": "x"}, status=422)["detail"]
    )
