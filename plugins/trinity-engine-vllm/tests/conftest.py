"""What stands for vLLM where it is not: a fake that answers each request with one token.

The plugin is not installed there: its source is looked for beside its tests.
"""

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[1] / "src"))


class FakeLLM:
    """Answers each request with one token at its first step; notes what it is told, in order."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.llm_engine = self
        self.log = []
        self.open = []
        self.may_load = threading.Event()
        self.may_load.set()
        self.fault = None  # in the midst of new weights
        self.engine_core = SimpleNamespace(shutdown=lambda: None)
        self.output_processor = SimpleNamespace(request_states={})  # what open requests have said
        text = SimpleNamespace(tie_word_embeddings=False)
        model = SimpleNamespace(hf_text_config=text, model="nowhere", get_vocab_size=lambda: 99)
        self.vllm_config = SimpleNamespace(model_config=model)

    def add_request(self, name, prompt, params):
        self.log.append(f"asked {name}")
        self.open.append(name)

    def step(self):
        outputs = [_output(name) for name in self.open]
        self.open = []
        self.log += [f"answered {output.request_id}" for output in outputs]
        return outputs

    def abort_request(self, names):
        self.log += [f"forgot {name}" for name in self.open if name in names]
        self.open = [name for name in self.open if name not in names]

    def collective_rpc(self, method, kwargs):
        self.log.append(f"{method} began")
        for name, _ in kwargs["weights_iterator"]:
            assert self.may_load.wait(10)
            if self.fault is not None:
                raise self.fault
            self.log.append(f"took {name}")

    def sleep(self, level):
        self.log.append(f"sleep {level}")

    def wake_up(self, tags):
        self.log.append(f"wake up {' and '.join(tags)}")

    def reset_prefix_cache(self, *, reset_running_requests=False):
        is_dropped = reset_running_requests or not self.open
        self.log.append(f"{'dropped' if is_dropped else 'kept'} the prefix cache")
        return is_dropped


def _output(name):
    sample = SimpleNamespace(
        index=0, token_ids=[8], logprobs=SimpleNamespace(logprobs=[-0.5]),
        finish_reason="length", stop_reason=None,
    )  # fmt: skip
    return SimpleNamespace(request_id=name, finished=True, outputs=[sample])


@pytest.fixture
def fake_vllm(monkeypatch):
    """Let a fake stand for vLLM; return the list of what is made of it."""
    vllm, sampling = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    made = []

    def make(**arguments):
        made.append(FakeLLM(**arguments))
        return made[-1]

    vllm.SamplingParams = lambda **params: params
    vllm.LLM = make
    sampling.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    return made
