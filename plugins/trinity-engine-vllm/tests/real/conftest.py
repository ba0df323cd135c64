"""Tiny models whose heads vLLM computes on a CPU; collected where vLLM is: ``nox -s vllm``."""

from importlib.util import find_spec

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import GenerationRequest, RunKey
from trinity_testing.tiny import make_tiny_model

collect_ignore_glob = [] if find_spec("vllm") else ["test_*"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a function: a tiny model's folder, tied or not."""

    def make(*, is_tied=True, seed=0):
        path = tmp_path_factory.mktemp("model")
        return make_tiny_model(
            path, hidden=128, heads=4, tie_embeddings=is_tied, init_std=0.15, seed=seed
        )

    return make


@pytest.fixture(scope="session")
def tied(folder):
    return folder()


@pytest.fixture(scope="session")
def engine(tied):
    from trinity_engine_vllm.engine import VLLMEngine

    made = VLLMEngine(model_path=str(tied), max_model_len=128)
    yield made
    made.close()


@pytest.fixture
def ask():
    """Return a function that makes a request; the parts of its key are arguments."""

    def make(prompt=(5, 6, 7), *, task=0, run=0, **options):
        options = {"max_new_tokens": 16, **options}
        return GenerationRequest(
            prompt_token_ids=tuple(prompt), key=RunKey(task=task, run=run), **options
        )

    return make


@pytest.fixture
def teacher_forced():
    """Return a function that computes the log-probabilities of a reply in one forward."""

    @torch.no_grad()
    def compute(model, prompt, token_ids, *, temperature=1.0):
        if not isinstance(model, torch.nn.Module):
            model = AutoModelForCausalLM.from_pretrained(model)
        ids = torch.tensor([[*prompt, *token_ids]])
        logprobs_LV = (model(ids).logits[0, :-1].float() / temperature).log_softmax(-1)
        return logprobs_LV.gather(1, ids[0, 1:, None])[len(prompt) - 1 :, 0].tolist()

    return compute
