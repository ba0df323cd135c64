"""Experiences in files, and supervised rows as experiences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from trinity.buffer.file import FileStorage
from trinity.common.config import DataSelectorConfig, ExperienceBufferConfig, FormatConfig
from trinity.errors import BufferClosedError, DataError
from trinity_testing.builders import a_group, an_experience
from trinity_testing.scripted_model import script_chat_format

USER, ANSWER = {"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}
SECOND = [{"role": "user", "content": "and 1?"}, {"role": "assistant", "content": "3"}]


def a_file(path, **fields) -> FileStorage:
    total_epochs = fields.pop("total_epochs", 1)
    fields.setdefault("storage_type", "file")
    return FileStorage(
        ExperienceBufferConfig(**fields),
        path=path,
        chat_format=script_chat_format(),
        total_epochs=total_epochs,
    )


def rows_file(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_one(path, **format_fields):
    storage = a_file(path, format=FormatConfig(**format_fields))
    return storage.read(1, timeout_s=1)[0]


def decoded(tokens):
    return script_chat_format().decode(tokens.tolist(), skip_special_tokens=False)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "experiences.jsonl"
    written = [*a_group((1.0, 0.0)), an_experience(reward=0.5, info={"model_version": 3})]
    storage = a_file(path)
    storage.write(written[:2])
    storage.write(written[2:])

    read = a_file(path).read(10, timeout_s=1)

    assert [e.to_dict() for e in read] == [e.to_dict() for e in written]
    assert torch.equal(read[0].tokens, written[0].tokens)


def test_reading_ends_with_the_last_epoch(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group((1.0, 0.0, 0.5)))
    storage = a_file(path, total_epochs=2)

    assert len(storage) == 6
    assert [len(storage.read(4, timeout_s=1)) for _ in range(2)] == [4, 2]
    assert storage.available() == 0
    with pytest.raises(StopIteration):
        storage.read(1, timeout_s=1)


def test_what_is_written_later_is_read_later(tmp_path):
    storage = a_file(tmp_path / "e.jsonl")
    storage.write(a_group((1.0, 0.0)))
    first = storage.read(2, timeout_s=1)
    storage.write(a_group((0.5,)))

    assert storage.available() == 1
    assert [e.reward for e in (*first, *storage.read(9, timeout_s=1))] == [1.0, 0.0, 0.5]


def test_without_an_end_reading_goes_on(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group((1.0, 0.0)))
    storage = a_file(path, total_epochs=None)

    assert [e.reward for e in storage.read(5, timeout_s=1)] == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_reading_goes_on_from_its_state_in_shuffled_order(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group([float(i) for i in range(6)]))
    fields = {"data_selector": DataSelectorConfig(selector_type="shuffle", seed=3)}
    storage = a_file(path, total_epochs=2, **fields)
    storage.read(4, timeout_s=1)
    state = json.loads(json.dumps(storage.state_dict()))
    rest = [e.reward for e in storage.read(8, timeout_s=1)]

    again = a_file(path, total_epochs=2, **fields)
    again.load_state_dict(state)

    assert [e.reward for e in again.read(8, timeout_s=1)] == rest
    assert rest != sorted(rest)


def test_a_half_written_line_is_replaced_by_the_next_step(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group((1.0,)))
    with path.open("a") as file:
        file.write('{"tokens": [1, 2')

    a_file(path).write(a_group((0.5,)))

    assert [e.reward for e in a_file(path).read(9, timeout_s=1)] == [1.0, 0.5]


def test_a_last_row_without_its_line_end_is_kept(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group((1.0, 0.25)))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    storage = a_file(path)
    storage.write(a_group((0.5,)))
    storage.write(a_group((0.75,)))

    assert [e.reward for e in a_file(path).read(9, timeout_s=1)] == [1.0, 0.25, 0.5, 0.75]


def test_a_row_that_cannot_be_read_skips_none_of_those_before_it(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write(a_group((1.0, 0.25, 0.5)))
    whole = path.read_text()
    first, second, third = whole.splitlines(keepends=True)
    path.write_text(first + json.dumps(json.loads(second) | {"tokens": "none"}) + "\n" + third)
    storage = a_file(path)
    with pytest.raises(DataError):
        storage.read(3, timeout_s=1)
    state = storage.state_dict()
    path.write_text(whole)

    again = a_file(path)
    again.load_state_dict(state)

    assert [e.reward for e in again.read(3, timeout_s=1)] == [1.0, 0.25, 0.5]


def test_a_step_that_is_made_again_after_a_kill_is_not_there_twice(tmp_path):
    path = tmp_path / "e.jsonl"
    storage = a_file(path)
    storage.write(a_group((1.0,)))
    state = storage.state_dict()
    storage.write(a_group((0.5,)))

    again = a_file(path)
    again.load_state_dict(state)
    again.write(a_group((0.5,)))

    assert [e.reward for e in a_file(path).read(9, timeout_s=1)] == [1.0, 0.5]


def test_a_write_that_fails_for_want_of_space_keeps_what_was_there(tmp_path, golden, full_beyond):
    path = tmp_path / "experiences.jsonl"
    storage = a_file(path)
    storage.write(a_group((1.0,)))
    before = path.read_bytes()
    with full_beyond(len(before) + 100), pytest.raises(DataError) as caught:
        storage.write(a_group((0.5, 0.25)))

    golden(str(caught.value), "experience_file_full", TMP=tmp_path)
    assert path.read_bytes() == before
    storage.write(a_group((0.5, 0.25)))
    assert len(a_file(path).read(9, timeout_s=1)) == 3


def test_an_empty_step_leaves_no_file(tmp_path):
    storage = a_file(tmp_path / "e.jsonl")
    storage.write([])

    assert storage.available() == 0
    assert not (tmp_path / "e.jsonl").exists()


def test_a_closed_file_takes_no_more(tmp_path):
    storage = a_file(tmp_path / "e.jsonl")
    storage.close()
    storage.close()

    with pytest.raises(BufferClosedError):
        storage.write(a_group())


def test_a_spoilt_experience_names_its_line(tmp_path):
    path = rows_file(tmp_path, {"tokens": [1, 2, 3], "prompt_length": 9})

    with pytest.raises(DataError, match=r"rows\.jsonl, row 1, is an incomplete experience"):
        a_file(path).read(1, timeout_s=1)


def test_experiences_of_older_models_are_passed_over(tmp_path):
    path = tmp_path / "e.jsonl"
    a_file(path).write([an_experience(reward=float(v), info={"model_version": v}) for v in (1, 5)])

    read = a_file(path).read(2, timeout_s=1, min_model_version=2)

    assert [e.reward for e in read] == [5.0]


def test_prompt_and_response_columns_become_a_prompt_and_an_answer(tmp_path):
    path = rows_file(tmp_path, {"question": "1+1=", "answer": "2"})

    experience = read_one(
        path, prompt_type="plaintext", prompt_key="question", response_key="answer"
    )

    prompt = script_chat_format().render([USER], add_generation_prompt=True)
    assert decoded(experience.tokens[: experience.prompt_length]) == prompt
    assert decoded(experience.tokens[experience.prompt_length :]) == "2<|im_end|>"
    assert experience.action_mask.tolist() == [True] * experience.response_length
    assert experience.reward is None
    assert experience.info["row"] == f"{path}, row 1"


def test_the_prompt_is_tokenised_as_when_the_model_is_asked(tmp_path):
    path = rows_file(tmp_path, {"messages": [USER, ANSWER]})
    chat_format = script_chat_format()

    experience = read_one(path, messages_key="messages")

    asked = chat_format.encode(chat_format.render([USER], add_generation_prompt=True))
    assert experience.tokens[: experience.prompt_length].tolist() == asked


def test_of_many_turns_the_last_answer_is_learnt(tmp_path):
    path = rows_file(tmp_path, {"messages": [USER, ANSWER, *SECOND]})

    experience = read_one(path, messages_key="messages")

    assert decoded(experience.tokens[experience.prompt_length :]) == "3<|im_end|>"
    assert experience.messages == [USER, ANSWER, *SECOND]


def test_concatenated_turns_learn_each_answer_and_mask_the_rest(tmp_path):
    path = rows_file(tmp_path, {"messages": [USER, ANSWER, *SECOND]})

    experience = read_one(path, messages_key="messages", enable_concatenated_multi_turn=True)

    response = experience.tokens[experience.prompt_length :]
    learnt = response[experience.action_mask]
    whole = script_chat_format().render([USER, ANSWER, *SECOND], add_generation_prompt=False)
    assert decoded(learnt) == "2<|im_end|>3<|im_end|>"
    assert decoded(experience.tokens) == whole.rstrip()
    assert len(experience.action_mask) + experience.prompt_length == len(experience.tokens)


@pytest.mark.parametrize(
    ("fields", "system"),
    [
        ({"system_prompt": "Be brief."}, "Be brief."),
        ({"system_prompt": "Be brief.", "system_prompt_key": "s"}, "From the row."),
    ],
)
def test_a_system_prompt_comes_first(tmp_path, fields, system):
    path = rows_file(tmp_path, {"message": [USER, ANSWER], "s": "From the row."})

    experience = read_one(path, **fields)

    assert experience.messages[0] == {"role": "system", "content": system}


def test_messages_and_tools_may_be_json_texts(tmp_path):
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    row = {"message": json.dumps([USER, ANSWER]), "tools": json.dumps([tool])}

    experience = read_one(rows_file(tmp_path, row))

    assert experience.tools == [tool]
    assert experience.messages == [USER, ANSWER]


def test_a_template_of_the_section_replaces_the_models(tmp_path):
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}"
    template += "{% if add_generation_prompt %}[assistant]{% endif %}"

    experience = read_one(rows_file(tmp_path, {"message": [USER, ANSWER]}), chat_template=template)

    assert decoded(experience.tokens) == "[user]1+1=<|im_end|>[assistant]2<|im_end|>"


def test_a_row_without_its_key_says_which(tmp_path):
    with pytest.raises(DataError, match=r"row 1, has no key 'message'.*Did you mean 'messages'"):
        read_one(rows_file(tmp_path, {"messages": [USER, ANSWER]}))


def test_a_conversation_without_an_answer_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not end with an answer"):
        read_one(rows_file(tmp_path, {"message": [USER]}))


def test_supervised_rows_without_a_model_are_refused(tmp_path):
    path = rows_file(tmp_path, {"message": [USER, ANSWER]})
    storage = FileStorage(ExperienceBufferConfig(), path=path)

    with pytest.raises(DataError, match=r"Set model\.model_path"):
        storage.read(1, timeout_s=1)


@pytest.fixture
def forbidden(tmp_path, monkeypatch):
    """Return a file of rows that may not be opened, whoever runs the tests."""
    path = rows_file(tmp_path, an_experience(reward=1.0).to_dict())
    opened = Path.open

    def refused(self, *args, **kwargs):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refused)
    return path


def test_a_file_that_may_not_be_read_is_named(forbidden):
    with pytest.raises(DataError, match=r"rows\.jsonl cannot be read: Permission denied"):
        a_file(forbidden).read(1, timeout_s=1)


def test_a_file_that_may_not_be_written_is_named(forbidden):
    with pytest.raises(DataError, match=r"cannot be written to .*rows\.jsonl: Permission denied"):
        a_file(forbidden).write([an_experience(reward=0.5)])
