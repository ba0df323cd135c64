"""A model behind an OpenAI-compatible API, evaluated: what it is asked, and what comes of it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from trinity.common.config import load_config
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.reply import reply_parser
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import GenerationRequest
from trinity.common.workflows import Workflow
from trinity.errors import ConfigError, ModelError
from trinity.runtime.run import run
from trinity_lab.external.engine import ExternalEngine
from trinity_lab.external.text_tokens import END, TOKENIZER
from trinity_lab.outcomes import read_outcome

WAIT_S = 60
QUESTION = {"role": "user", "content": "?"}
SUMS = {"1+3": "4", "2+3": "5"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


class Api(ThreadingHTTPServer):
    """Answers each request with what ``answer`` makes of its body; keeps what was asked."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked, self.keys = answer, [], set()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        self.server.keys.add(self.headers["authorization"])
        status, message = self.server.answer(asked)
        if isinstance(message, bytes):
            self.send(status, message)
            return
        reason = "tool_calls" if message.get("tool_calls") else message.pop("finish", "stop")
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
        completion = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        body = {**completion, "choices": [choice]} if status == 200 else {"error": message}
        self.send(status, json.dumps(body).encode())

    def send(self, status, text):
        self.send_response(status)
        kind = "text/html" if text.startswith(b"<") else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def serve(monkeypatch):
    """Return a function that starts an API and sets the variables that lead to it."""
    servers = []

    def start(answer):
        server = Api(answer)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test-0815")
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def engine(serve):
    """Return a function that makes the engine of an API."""
    made = []

    def make(answer):
        from trinity.common.config import ExternalModelConfig

        server = serve(answer)
        made.append(ExternalEngine(ExternalModelConfig(enable=True, model_name="big")))
        return made[-1], server

    yield make
    for one in made:
        one.close()


@pytest.fixture
def file(tmp_path):
    """Return a file in the form of the published ones, with two tasks."""
    rows = [{"q": question, "a": answer} for question, answer in SUMS.items()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "bench.yaml"
    path.write_text(
        f"""
mode: bench
project: p
name: n
checkpoint_root_dir: {tmp_path / "out"}
model:
  model_path: big
  max_model_len: 4096
  max_prompt_tokens: 2048
  max_response_tokens: 1024
  external_model: {{enable: true}}
buffer:
  batch_size: 16
  explorer_input:
    eval_tasksets:
      - name: sums
        storage_type: file
        path: {tmp_path / "rows.jsonl"}
        repeat_times: 2
        format: {{prompt_key: q, response_key: a}}
        rollout_args: {{temperature: 0.5, logprobs: 0}}
    default_eval_workflow_type: math_workflow
monitor: {{monitor_type: jsonl}}
"""
    )
    return path


def prompt_of(messages, **options):
    chat_format = ChatFormat.load(str(TOKENIZER))
    return tuple(chat_format.encode(chat_format.render(messages, **options)))


def replied(engine, messages, *, tools=None, **request):
    prompt = prompt_of(messages, tools=tools)
    return engine.submit(GenerationRequest(prompt_token_ids=prompt, **request)).result(WAIT_S)


def text_of(completion):
    return ChatFormat.load(str(TOKENIZER)).decode(completion.token_ids)


def test_a_published_file_evaluates_the_model_behind_the_api(serve, file):
    def answer(asked):
        question = asked["messages"][-1]["content"]
        return 200, {"content": f"\\boxed{{{SUMS[question]}}}"}

    api = serve(answer)

    result = run(load_config(file), local=True)

    [stage] = result.stages
    assert stage.evaluation["eval/sums/accuracy/mean@2"] == 1.0
    assert stage.evaluation["eval/sums/failed_runs"] == 0
    assert len(api.asked) == 4
    assert api.keys == {"Bearer sk-of-the-test-0815"}
    assert {(one["model"], one["temperature"], one["max_tokens"]) for one in api.asked} == {
        ("big", 0.5, 1024)
    }


def test_a_key_that_the_api_refuses_is_said(serve, file):
    serve(lambda asked: (401, {"message": "Incorrect API key"}))

    with pytest.raises(Exception, match=r"of OPENAI_BASE_URL gave no .* 'big'.*Incorrect"):
        run(load_config(file), local=True)


def test_a_variable_that_is_not_set_is_said_before_anything_starts(file, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not set; it holds the address"):
        run(load_config(file), local=True)


def test_a_model_behind_an_api_is_not_trained(file, serve):
    serve(lambda asked: (200, {"content": "4"}))
    config = load_config(file, overrides=["mode=both"])

    with pytest.raises(ConfigError, match=r"external_model.enable: a model .* Use mode"):
        run(config, local=True)


class AsksItsJudge(Workflow):
    """Its reward is what the judge says."""

    def run(self):
        judge = self.auxiliary_models[0]
        wrapper = self.auxiliary_model_wrappers[0]
        [reply] = self.model.chat([{"role": "user", "content": self.task.raw_task["q"]}])
        judged = judge.chat.completions.create(
            model=judge.model_path,
            messages=[{"role": "user", "content": "Judge."}],
            **wrapper.generate_kwargs,
        )
        reply.reward = float(judged.choices[0].message.content)
        return [reply]


@pytest.mark.parametrize("given", [{}, {"max_response_tokens": 256}])
def test_a_judge_beside_it_is_not_asked_for_replies_of_its_length(serve, file, given):
    api = serve(lambda asked: (200, {"content": "0.5"}))
    text = file.read_text().replace("math_workflow", f"{__name__}:AsksItsJudge")
    judge = {"name": "judge", "external_model_config": {"enable": True, "model_name": "j"}, **given}
    read = yaml.safe_load(text)
    read["explorer"] = {"auxiliary_models": [judge]}
    for name in ("max_model_len", "max_prompt_tokens", "max_response_tokens"):
        del read["model"][name]
    file.write_text(yaml.safe_dump(read))

    result = run(load_config(file), local=True)

    assert result.stages[0].evaluation["eval/sums/reward/mean@2"] == 0.5
    asked = {(one["model"], one.get("max_tokens")) for one in api.asked}
    assert asked == {("big", None), ("j", given.get("max_response_tokens", 1024))}


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, "model_path and engine_type"), ({"model_path": "x"}, "engine_type")],
)
def test_a_judge_with_an_engine_beside_it_names_its_own(serve, file, given, missing):
    serve(lambda asked: (200, {"content": "0.5"}))
    read = yaml.safe_load(file.read_text())
    read["explorer"] = {"auxiliary_models": [given]}
    file.write_text(yaml.safe_dump(read))

    with pytest.raises(ConfigError, match=f"auxiliary_models.0: names no {missing}"):
        run(load_config(file), local=True)


def test_messages_reach_the_api_as_they_were_written(engine):
    said = 'the char \x00, "quotes", é, 漢, 😀 and <tool_call>\n'
    one, api = engine(lambda asked: (200, {"content": said}))

    [completion] = replied(
        one, [{"role": "system", "content": said}, {"role": "user", "content": "?"}]
    )

    assert api.asked[0]["messages"][0] == {"role": "system", "content": said}
    assert completion.finish_reason == "stop"
    assert completion.token_ids == (*said.encode(), END)
    assert text_of(completion) == said


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_reply_that_the_api_cut_is_told_as_truncated(engine, reason):
    one, _ = engine(lambda asked: (200, {"content": "so far", "finish": reason}))

    [completion] = replied(one, [QUESTION])

    assert (text_of(completion), completion.finish_reason) == ("so far", "length")


def test_calls_of_tools_go_to_the_api_and_come_back(engine):
    one, api = engine(lambda asked: (200, {"content": "Let me add.", "tool_calls": [CALL]}))
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    call = {**CALL, "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]

    [completion] = replied(one, messages, tools=[tool])

    assert api.asked[0]["tools"] == [tool]
    assert api.asked[0]["messages"][1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert api.asked[0]["messages"][2] == messages[2]
    parser = reply_parser(ChatFormat.load(str(TOKENIZER)), ModelSettings())
    parsed = parser.parse(text_of(completion), prompt="", tools=[tool])
    assert parsed.content.strip() == "Let me add."
    assert [(one.name, one.arguments) for one in parsed.tool_calls] == [("add", {"a": 1})]


def test_n_replies_are_n_requests(engine):
    one, api = engine(lambda asked: (200, {"content": str(len(api.asked))}))

    completions = replied(one, [QUESTION], n=3, stop=("x",), top_k=5)

    assert len(completions) == len(api.asked) == 3
    assert {(tuple(asked["stop"]), asked["top_k"]) for asked in api.asked} == {(("x",), 5)}


@pytest.mark.parametrize(
    "setting", [{"ignore_eos": True}, {"min_new_tokens": 3}, {"stop_token_ids": (3,)}]
)
def test_a_setting_that_such_apis_lack_is_refused_by_name(engine, setting):
    one, _ = engine(lambda asked: (200, {"content": ""}))

    with pytest.raises(ModelError, match=next(iter(setting))):
        replied(one, [QUESTION], **setting)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>",
        b"{not JSON",
        b"[1, 2]",
        b'{"choices": []}',
        b'{"error": {"message": "no credits"}}',
        b'{"choices": [{"finish_reason": "stop", "message": null}]}',
        b'{"choices": [{"message": {"content": 4}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}',
    ],
)
def test_what_is_no_reply_is_told_with_its_beginning(engine, body):
    one, _ = engine(lambda asked: (200, body))

    with pytest.raises(ModelError) as told:
        replied(one, [QUESTION])

    assert "the API of OPENAI_BASE_URL gave no reply of 'big'" in str(told.value)
    assert body.decode() in str(told.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": [{"type": "text", "text": "4"}, {"type": "thinking", "thinking": "."}]}, "4"),
        ({"content": None, "refusal": "I can't.", "finish": "content_filter"}, "I can't."),
        ({"content": "a\ud83db"}, "a?b"),  # half of a character
        ({"content": "4", "reasoning_content": "Hm.", "tool_calls": None}, "4"),
        ({"content": "4", "tool_calls": [{"type": "custom", "custom": {"name": "x"}}]}, "4"),
    ],
)
def test_a_reply_of_another_shape_is_read(engine, message, text):
    one, _ = engine(lambda asked: (200, dict(message)))

    [completion] = replied(one, [QUESTION])

    assert (text_of(completion), completion.finish_reason) == (text, "stop")


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'])
def test_a_call_is_read_without_a_type_and_with_arguments_as_an_object(engine, arguments):
    call = {"id": "c", "function": {"name": "add", "arguments": arguments}}
    one, _ = engine(lambda asked: (200, {"content": None, "tool_calls": [call]}))

    [completion] = replied(one, [QUESTION])

    assert text_of(completion) == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    )


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("OPENAI_BASE_URL", "127.0.0.1:8000/v1", "begins with neither http:// nor https://"),
        ("OPENAI_BASE_URL", "http://", "names no host"),
        ("OPENAI_API_KEY", "sk-secret\n", "has a space, a line break or another character"),
        ("OPENAI_API_KEY", "sk-sécret", "has a space, a line break or another character"),
    ],
)
def test_an_address_or_a_key_that_no_request_can_carry_is_said_before_anything_starts(
    serve, file, monkeypatch, name, value, what
):
    serve(lambda asked: (200, {"content": "4"}))
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=f"{name} {what}") as told:
        run(load_config(file), local=True)

    assert "cret" not in str(told.value)


def test_a_closed_engine_leaves_nobody_waiting(engine):
    is_closing = threading.Event()
    one, _ = engine(lambda asked: (is_closing.wait(WAIT_S), (200, {"content": ""}))[1])
    prompt = prompt_of([QUESTION])
    waiting = one.submit(GenerationRequest(prompt_token_ids=prompt))

    one.close()
    is_closing.set()

    assert waiting.cancelled()
    one.close()


def test_each_token_is_a_byte():
    tokenizer = ChatFormat.load(str(TOKENIZER)).tokenizer

    assert len(tokenizer) == END + 1
    assert tokenizer.eos_token_id == END
    every = "".join(map(chr, range(1, 0x800)))
    assert tokenizer.encode(every, add_special_tokens=False) == list(every.encode())


def test_eval_puts_a_model_behind_an_api_into_one_table_with_others(serve, file, call, tmp_path):
    api = serve(lambda asked: (200, {"content": "4"}))
    options = ["--data", tmp_path / "rows.jsonl", "--reward", "math_reward", "--passes-at", 0.5]
    keys = [("prompt", "q"), ("response", "a")]
    path = "buffer.explorer_input.eval_tasksets.0.format"
    options += [one for name, key in keys for one in ("--set", f"{path}.{name}_key={key}")]

    for _ in range(2):  # the second one replaces the first
        result = call("eval", "api:big", *options, "--to", tmp_path, "--local", "--json")

        [row] = json.loads(result.stdout)["models"]
        assert row["model"] == "api:big"
        assert row["scores"]["pass@1"]["value"] == 0.5
    [folder] = (tmp_path / "eval").iterdir()
    assert folder.name == "rows-api-big"
    assert read_outcome(folder).settings["model.model_path"] == "api:big"  # as a table names it
    assert {one["model"] for one in api.asked} == {"big"}
    assert all("max_tokens" not in one for one in api.asked)


def test_a_benchmark_of_lm_eval_does_not_ask_an_api(call):
    result = call("eval", "api:big", "--tasks", "gsm8k")

    assert result.exit_code == 2
    assert "lm-eval cannot ask api:big" in result.output
