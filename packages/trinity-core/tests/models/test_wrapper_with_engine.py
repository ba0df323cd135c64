"""The wrapper and the embedded engine together."""

import threading

import torch
from transformers import AutoModelForCausalLM
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.engines.transformers_engine import TransformersEngine
from trinity_testing.tiny import make_tiny_model


def test_conversations_in_threads_hold_what_the_engine_sampled(tmp_path):
    path = make_tiny_model(tmp_path)
    engine = TransformersEngine(model_path=str(path), max_model_len=512)
    settings = ModelSettings(model_path=str(path), max_model_len=512, max_response_tokens=12)
    model = ModelWrapper(engine, ChatFormat.load(str(path)), settings)
    wholes = {}

    def talk(run):
        wrapper = model.for_run(RunKey(run=run))
        messages = [{"role": "user", "content": f"what is {run} + {run}"}]
        for _ in range(3):
            [reply] = wrapper.chat(messages)
            messages += [
                {"role": "assistant", "content": reply.response_text},
                {"role": "user", "content": "go on"},
            ]
        wholes[run] = wrapper.convert_messages_to_experience(messages[:-1])

    threads = [threading.Thread(target=talk, args=(run,)) for run in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.close()
    reference = AutoModelForCausalLM.from_pretrained(path)
    for whole in wholes.values():
        with torch.no_grad():
            full = reference(whole.tokens[None]).logits[0, :-1].log_softmax(-1)
        expected = full.gather(1, whole.tokens[1:, None])[whole.prompt_length - 1 :, 0]
        mask = whole.action_mask
        assert mask.any()
        assert (whole.logprobs - expected)[mask].abs().max() < 1e-5
