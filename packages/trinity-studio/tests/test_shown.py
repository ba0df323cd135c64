"""Secrets of the settings are hidden wherever they stand."""

from __future__ import annotations

import pytest
from trinity_studio.view.shown import Masker


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("monitor.monitor_args.password", 12345678),
        ("monitor.monitor_args.hf_token", "hf-12345"),
        ("a.GITHUB_TOKEN", "ghp-12345"),
        ("a.token", "12345678"),
        ("a.headers.X-Api-Key", "sk-12345"),
        ("a.servers", [{"token": "12345678"}]),
        ("a.servers", [{"password": 12345678}]),
    ],
)
def test_a_secret_is_hidden_as_a_setting_and_in_texts(path, value) -> None:
    masker = Masker({path: value})
    (secret,) = [value] if not isinstance(value, list) else value[0].values()

    assert masker.setting(path, value) == "****"
    assert masker.text(f"refused: {secret}!") == "refused: ****!"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.max_tokens", 512000),
        ("a.tokenizer", "bpe-large"),
        ("a.eos_token", "<|endoftext|>"),
        ("a.token_level", True),
        ("a.is_secret", False),
        ("a.password", None),
    ],
)
def test_what_is_no_secret_is_shown(path, value) -> None:
    masker = Masker({path: value})

    assert masker.setting(path, value) == str(value)
    assert masker.text(f"found {value}") == f"found {value}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("at https://me:pw@host/x", "at https://****@host/x"),
        ("at https://me:p@w@host/x", "at https://****@host/x"),
        ("at https://ghp_x@github.com", "at https://****@github.com"),
        ("postgresql://db/x?password=pw", "postgresql://db/x?password=****"),
        ("http://h?a=1&passwd=pw&b=2 said", "http://h?a=1&passwd=****&b=2 said"),
        ("http://h?api_key=k&hf_token=t", "http://h?api_key=****&hf_token=****"),
        ("http://h?max_tokens=5 a@b", "http://h?max_tokens=5 a@b"),
    ],
)
def test_passwords_and_tokens_of_addresses_are_hidden_in_texts(text, told) -> None:
    assert Masker({}).text(text) == told
