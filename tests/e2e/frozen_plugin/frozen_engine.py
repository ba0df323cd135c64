"""A rollout engine that answers each request at once, one token after the other."""

import threading
from concurrent.futures import Future

import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import Completion, WeightVersion
from trinity.errors import ModelError


class FrozenEngine:
    """Samples with transformers.

    Args:
        model_path: the model.
        max_model_len: not used.
        dtype: not used.
        seed: of all samples.
        trust_remote_code: not used.
        module: not used.
    """

    def __init__(
        self,
        *,
        model_path,
        max_model_len=None,
        dtype="float32",
        seed=0,
        trust_remote_code=False,
        module=None,
    ):
        self.model = AutoModelForCausalLM.from_pretrained(model_path)
        self.random = torch.Generator().manual_seed(seed)
        self.lock = threading.Lock()
        self.loaded = WeightVersion(0)
        self.num_runs = 0
        self.is_closed = False

    @property
    def version(self):
        return self.loaded

    def submit(self, request):
        future = Future()
        if self.is_closed:
            future.set_exception(ModelError("closed"))
        else:
            with self.lock:
                future.set_result([self.sample(request) for _ in range(request.n)])
        return future

    @torch.no_grad()
    def sample(self, request):
        ids, logprobs = list(request.prompt_token_ids), []
        stops = self.model.generation_config.eos_token_id
        for _ in range(request.max_new_tokens):
            logits = self.model(torch.tensor([ids])).logits[0, -1].float()
            spread = (logits / (request.temperature or 1.0)).log_softmax(-1)
            token = int(torch.multinomial(spread.exp(), 1, generator=self.random))
            ids.append(token)
            logprobs.append(float(spread[token]))
            if token in stops:
                break
        return Completion(
            token_ids=tuple(ids[len(request.prompt_token_ids) :]),
            logprobs=tuple(logprobs),
            finish_reason="stop" if ids[-1] in stops else "length",
            weight_version=self.loaded,
        )

    def run_began(self):
        self.num_runs += 1

    def run_ended(self):
        self.num_runs -= 1

    def load_weights(self, snapshot):
        with self.lock:
            self.model.load_state_dict(dict(snapshot.tensors), strict=False)
            self.loaded = snapshot.version

    def close(self):
        self.is_closed = True
