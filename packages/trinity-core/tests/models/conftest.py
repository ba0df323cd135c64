"""A wrapper over an engine that replies with what the test says."""

from concurrent.futures import Future

import pytest
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, WeightVersion
from trinity_testing.tiny import CHAT_TEMPLATE, make_tiny_tokenizer

END = 2


class RepliesOf:
    """Answers request i with the i-th list of token ids, n times; keeps the requests."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.version = WeightVersion(0)
        self.spans = ()

    def submit(self, request):
        self.requests.append(request)
        ids = tuple(self.replies.pop(0))
        future = Future()
        completion = Completion(
            token_ids=ids,
            logprobs=tuple(-0.1 * (i + 1) for i in range(len(ids))),
            finish_reason="stop" if ids[-1] == END else "length",
            weight_version=self.version,
            version_spans=self.spans,
        )
        future.set_result([completion] * request.n)
        return future


@pytest.fixture(scope="session")
def chat_format():
    return ChatFormat(make_tiny_tokenizer())


@pytest.fixture
def scripted(chat_format):
    """Return a function: replies (token ids each) -> (wrapper, engine)."""

    def make(*replies, template=CHAT_TEMPLATE, **settings):
        engine = RepliesOf(*replies)
        form = ChatFormat(make_tiny_tokenizer(chat_template=template))
        options = {"model_path": "tiny", "max_model_len": 512, "max_response_tokens": 32}
        return ModelWrapper(engine, form, ModelSettings(**(options | settings))), engine

    return make


@pytest.fixture
def letters(chat_format):
    """Return a function that spells a text letter by letter, as no encoder would, and ends it."""

    def spell(text, *, ends=True):
        ids = [token for letter in text for token in chat_format.encode(letter)]
        return [*ids, END] if ends else ids

    return spell
