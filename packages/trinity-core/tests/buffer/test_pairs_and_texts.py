"""Files of preference pairs and of plain text."""

from __future__ import annotations

import json

import pytest
from trinity.buffer.file import FileStorage
from trinity.common.config import ExperienceBufferConfig, FormatConfig
from trinity.errors import DataError
from trinity_testing.scripted_model import script_chat_format

USER = {"role": "user", "content": "1+1="}
GOOD, BAD = {"role": "assistant", "content": "2"}, {"role": "assistant", "content": "3"}
EARLIER = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
TEXTS = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]


def storage_of(tmp_path, *rows, schema="dpo", **keys):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ExperienceBufferConfig(
        storage_type="file", schema_type=schema, format=FormatConfig(**keys)
    )
    return FileStorage(config, path=path, chat_format=script_chat_format())


def read_one(*args, **settings):
    (experience,) = storage_of(*args, **settings).read(1, timeout_s=1)
    return experience


def decoded(tokens):
    return script_chat_format().decode(tokens.tolist(), skip_special_tokens=False)


@pytest.mark.parametrize(
    ("row", "keys"),
    [
        (TEXTS, {"prompt_type": "plaintext"}),
        (TEXTS, {}),
        ({"message": [USER], "chosen": [GOOD], "rejected": [BAD]}, {}),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, {}),
        ({"message": json.dumps([USER]), "chosen": [GOOD], "rejected": [BAD]}, {}),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, {"prompt_type": "chatpair"}),
        ({"prompt": "1+1=", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, {}),
        (
            {"q": "1+1=", "good": "2", "bad": "3"},
            {"prompt_key": "q", "chosen_key": "good", "rejected_key": "bad"},
        ),
    ],
)
def test_a_pair_has_one_prompt_and_two_answers(tmp_path, row, keys) -> None:
    pair = read_one(tmp_path, row, **keys)

    prompt = script_chat_format().render([USER], add_generation_prompt=True)
    assert decoded(pair.tokens) == prompt
    assert pair.prompt_length == len(pair.tokens)
    assert decoded(pair.chosen) == "2<|im_end|>"
    assert decoded(pair.rejected) == "3<|im_end|>"


def test_earlier_turns_and_a_system_prompt_belong_to_the_prompt(tmp_path) -> None:
    row = {"message": [*EARLIER, USER], "chosen": "2", "rejected": "3"}

    pair = read_one(tmp_path, row, system_prompt="be short")

    messages = [{"role": "system", "content": "be short"}, *EARLIER, USER]
    assert decoded(pair.tokens) == script_chat_format().render(messages)
    assert decoded(pair.chosen) == "2<|im_end|>"


def test_tools_are_shown_in_the_prompt(tmp_path) -> None:
    pair = read_one(tmp_path, TEXTS | {"tools": TOOLS})

    assert pair.tools == TOOLS
    assert decoded(pair.tokens) == script_chat_format().render([USER], tools=TOOLS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "chosen": "2"}, r"row 1, has no key 'rejected'.*rejected_key"),
        ({"prompt": "p", "chosn": "2", "rejected": "3"}, r"'chosen'.*Did you mean 'chosn'"),
        ({"chosen": "2", "rejected": "3"}, r"row 1, has no key 'message', which format.messages"),
        ({"prompt": "p", "chosen": [USER], "rejected": "3"}, r"row 1: 'chosen' is no answer"),
        ({"prompt": "p", "chosen": "2", "rejected": ""}, r"row 1: 'rejected' is no answer"),
    ],
)
def test_a_row_that_is_no_pair_is_named_with_its_key(tmp_path, row, message) -> None:
    with pytest.raises(DataError, match=message):
        read_one(tmp_path, row)


def test_parquet_is_read_too(tmp_path) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "rows.parquet"
    datasets.Dataset.from_list(
        [{"message": [USER], "chosen": [GOOD], "rejected": [BAD]}]
    ).to_parquet(str(path))
    config = ExperienceBufferConfig(storage_type="file", schema_type="dpo")

    (pair,) = FileStorage(config, path=path, chat_format=script_chat_format()).read(1, timeout_s=1)

    assert decoded(pair.rejected) == "3<|im_end|>"


def test_with_the_schema_sft_a_row_that_has_pairs_too_is_read_for_its_answer(tmp_path) -> None:
    experience = read_one(
        tmp_path, TEXTS | {"response": "4"}, schema="sft", prompt_type="plaintext"
    )

    assert not experience.is_preference_pair
    assert decoded(experience.tokens[experience.prompt_length :]) == "4<|im_end|>"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "some text"}, "some text<|im_end|>"),
        ({"prompt": "some ", "response": "text"}, "some text<|im_end|>"),
    ],
)
def test_all_but_the_first_token_of_a_text_is_learned(tmp_path, row, text) -> None:
    experience = read_one(tmp_path, row, schema="cpt", prompt_type="plaintext")

    assert decoded(experience.tokens) == text
    assert experience.prompt_length == 1
    assert experience.action_mask.tolist() == [True] * (len(experience.tokens) - 1)


def test_messages_are_rendered_as_a_text(tmp_path) -> None:
    experience = read_one(tmp_path, {"message": [USER, GOOD]}, schema="cpt")

    whole = script_chat_format().render([USER, GOOD], add_generation_prompt=False)
    assert decoded(experience.tokens) == whole


@pytest.mark.parametrize(
    ("row", "message"),
    [({"text": "a b"}, "row 1, has no key 'prompt'"), ({"prompt": ""}, "row 1: the text is empty")],
)
def test_a_row_without_a_text_is_named(tmp_path, row, message) -> None:
    with pytest.raises(DataError, match=message):
        read_one(tmp_path, row, schema="cpt", prompt_type="plaintext")
