"""The chat format renders, and says what it cannot render."""

import subprocess
import sys

import pytest
from trinity.common.config.model import ModelConfig
from trinity.common.models import pretrained
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.pretrained import fetch_settings, load_pretrained
from trinity.errors import ConfigError, ModelError
from trinity_testing.tiny import make_tiny_model, make_tiny_tokenizer

HELLO = [{"role": "user", "content": "hello"}]


def test_a_model_folder_brings_its_template(tmp_path):
    chat_format = ChatFormat.load(str(make_tiny_model(tmp_path)))
    text = "<|im_start|>user\nhello<|im_end|>\n"
    assert chat_format.render(HELLO, add_generation_prompt=False) == text
    assert chat_format.render(HELLO) == text + "<|im_start|>assistant\n"
    assert chat_format.eos_token_ids == [2]
    assert chat_format.decode(chat_format.encode(text)) == "user\nhello\n"


def test_a_template_file_wins_over_the_text_and_the_text_over_the_model(tmp_path):
    path = str(make_tiny_model(tmp_path))
    (tmp_path / "t.jinja").write_text("file {{ messages[0].content }}")
    both = {"chat_template": "text", "chat_template_path": str(tmp_path / "t.jinja")}
    assert ChatFormat.load(path, **both).render(HELLO) == "file hello"
    assert ChatFormat.load(path, chat_template="text").render(HELLO) == "text"


def test_a_template_file_that_is_missing_is_named(tmp_path, golden):
    with pytest.raises(ConfigError) as caught:
        ChatFormat.load("m", chat_template_path=str(tmp_path / "none.jinja"))
    golden(str(caught.value), "chat_template_file_missing", FOLDER=tmp_path)


def test_the_thinking_switch_reaches_the_template():
    template = "{{ 'on' if enable_thinking is not defined or enable_thinking else 'off' }}"
    chat_format = ChatFormat(make_tiny_tokenizer(chat_template=template))
    rendered = [chat_format.render(HELLO, enable_thinking=value) for value in (None, True, False)]
    assert rendered == ["on", "on", "off"]


def test_no_template_is_an_error_with_a_remedy(golden):
    tokenizer = make_tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ModelError) as caught:
        ChatFormat(tokenizer).render(HELLO)
    golden(str(caught.value), "chat_template_missing")


def test_messages_that_the_template_refuses_are_described(golden):
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ModelError) as caught:
        ChatFormat(make_tiny_tokenizer(chat_template=template)).render(HELLO)
    golden(str(caught.value), "chat_template_refuses")


def test_a_message_without_content_is_described():
    with pytest.raises(ModelError, match="Each message needs role and content"):
        ChatFormat(make_tiny_tokenizer()).render([{"role": "user"}])


def test_an_id_is_looked_for_in_the_cache_first(monkeypatch):
    tried = []

    def loader(model_path, *, local_files_only):
        tried.append((model_path, local_files_only))
        if local_files_only:
            raise OSError("not cached")
        return "model"

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: None)
    assert load_pretrained(loader, "some/model") == "model"
    assert tried == [("some/model", True), ("some/model", False)]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="'some/model' cannot be loaded: not cached"):
        load_pretrained(loader, "some/model")


def test_the_settings_of_a_model_are_fetched_alone_if_they_are_nowhere(
    monkeypatch, tmp_path
) -> None:
    asked = []

    def fetched(model_path, *, filename, local_files_only):
        asked.append((model_path, filename, local_files_only))
        raise OSError("not there")

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetched)
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: None)
    here, elsewhere, behind = (ModelConfig(model_path=p) for p in (str(tmp_path), "a/b", "c/d"))
    behind.external_model.enable = True
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    fetch_settings(elsewhere)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for model in (here, elsewhere, behind):
        fetch_settings(model)

    once = ("a/b", "config.json")
    assert asked == [(*once, True), (*once, True), (*once, False)]


def test_a_model_that_is_known_by_its_name_is_planned_without_a_download(monkeypatch) -> None:
    asked = []

    def asks(model_path, **_):
        asked.append(model_path)
        raise ConnectionError("timed out")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", asks)
    monkeypatch.setattr("huggingface_hub.model_info", asks)
    monkeypatch.setattr(pretrained, "model_file", lambda *_: None)

    fetch_settings(ModelConfig(model_path="Qwen/Qwen2.5-7B-Instruct"))
    assert asked == []
    fetch_settings(ModelConfig(model_path="nobody/Qwen2.5-7B-Instruct"))  # may have other settings
    assert set(asked) == {"nobody/Qwen2.5-7B-Instruct"}


@pytest.mark.parametrize("known", ["Qwen/Qwen2.5-0.5B-Instruct", "in/the-cache", ""])
def test_a_hub_that_is_back_is_asked_again_in_the_same_process(monkeypatch, known) -> None:
    """Settings are known or in the cache, or nobody asked for them; the weights are not here."""
    asked = []

    def refused(*_, **__):
        asked.append(1)
        raise ConnectionError("timed out")

    def loader(_model_path, *, local_files_only):
        if local_files_only:
            raise OSError("not cached")
        return "model"

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", refused)
    monkeypatch.setattr(pretrained, "model_file", lambda *_: "config.json")
    model = ModelConfig(model_path=known or "nobody/asked")
    for times in (1, 2):
        if known:
            fetch_settings(model)
        with pytest.raises(ModelError, match="cannot be reached: timed out") as caught:
            load_pretrained(loader, model.model_path)
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert len(asked) == times
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: None)

    assert load_pretrained(loader, model.model_path) == "model"


def test_a_hub_that_did_not_answer_for_the_settings_is_not_asked_again_by_the_loader(
    monkeypatch,
) -> None:
    asked = []

    def refused(*_, **__):
        asked.append(1)
        raise ConnectionError("timed out")

    def loader(_model_path, *, local_files_only):
        raise OSError("not cached")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", refused)
    fetch_settings(ModelConfig(model_path="nobody/unknown"))
    with pytest.raises(ModelError, match="the Hugging Face hub cannot be reached: timed out"):
        load_pretrained(loader, "nobody/unknown")
    assert asked == [1]

    fetch_settings(ModelConfig(model_path="nobody/unknown"))  # another run of the process

    assert asked == [1, 1]


def test_settings_whose_download_breaks_off_are_no_error(monkeypatch) -> None:
    class ReadError(Exception):
        """As httpx has it: no OSError."""

    def broken(*_, local_files_only, **__):
        raise OSError("not cached") if local_files_only else ReadError("peer closed connection")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)

    fetch_settings(ModelConfig(model_path="nobody/broken"))


def test_importing_the_model_wrapper_imports_nothing_heavy():
    code = (
        "import sys, trinity.common.models.model, trinity.common.models.chat_format;"
        "print({'torch', 'transformers', 'numpy', 'ray'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    asked = []

    def refused(*_, **__):
        asked.append(1)
        raise ConnectionError("Name or service not known")

    def loader(_model_path, *, local_files_only):
        assert local_files_only, "the library tries each file six times"
        raise OSError("not cached")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.model_info", refused)
    with pytest.raises(ModelError, match="the Hugging Face hub cannot be reached: Name or service"):
        load_pretrained(loader, "nobody/nothing")
    assert asked == [1]
