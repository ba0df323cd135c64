"""A tiny model, engines that are closed at the end, and the reference to compare with."""

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.transformers_engine import TransformersEngine
from trinity_testing.tiny import make_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def start():
    """Return a function that starts an engine and closes it after the test."""
    engines = []

    def start_engine(path, **options):
        options = {"max_model_len": 128, "device": "cpu", **options}
        engines.append(TransformersEngine(model_path=str(path), **options))
        return engines[-1]

    yield start_engine
    for engine in engines:
        engine.close()


@pytest.fixture
def ask():
    """Return a function that makes a request; the parts of its key are arguments."""

    def make(prompt=(5, 6, 7), *, batch="0", task=0, run=0, request=0, attempt=1, **options):
        key = RunKey(batch=batch, task=task, run=run, request=request, attempt=attempt)
        options = {"max_new_tokens": 16, **options}
        return GenerationRequest(prompt_token_ids=tuple(prompt), key=key, **options)

    return make


@pytest.fixture
def answers():
    """Return a function that sends requests together and gives the completions of each."""

    def send(engine, *requests):
        return [future.result(60) for future in [engine.submit(r) for r in requests]]

    return send


@pytest.fixture
def teacher_forced():
    """Return a function that computes the log-probabilities of a completion in one forward."""

    @torch.no_grad()
    def compute(path, request, completion, *, temperature=1.0):
        model = AutoModelForCausalLM.from_pretrained(path)
        prompt = len(request.prompt_token_ids)
        ids = torch.tensor([request.prompt_token_ids + completion.token_ids])
        logprobs = (model(ids).logits[0, :-1] / temperature).log_softmax(-1)
        return logprobs.gather(1, ids[0, 1:, None])[prompt - 1 :, 0]

    return compute
