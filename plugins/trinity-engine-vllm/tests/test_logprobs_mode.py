"""vLLM tells log-probabilities in one way for a whole engine: which, and what is refused."""

import pytest
from trinity.errors import ModelError
from trinity_engine_vllm.logprobs_mode import Sampling, check_mode, logprobs_mode


@pytest.mark.parametrize(
    ("sampling", "mode"),
    [
        (Sampling(), "processed_logprobs"),
        (Sampling(temperature=0.7), "processed_logprobs"),
        (Sampling(top_p=0.9), "raw_logprobs"),
        (Sampling(temperature=0.0, top_k=5), "raw_logprobs"),
        (Sampling(min_response_tokens=4), "raw_logprobs"),
        (Sampling(repetition_penalty=1.1), "raw_logprobs"),
        (Sampling(presence_penalty=0.5), "raw_logprobs"),
        (Sampling(frequency_penalty=-0.5), "raw_logprobs"),
        (Sampling(logit_bias=((5, 1.0),)), "raw_logprobs"),
    ],
)
def test_the_mode_follows_from_the_settings_of_the_run(sampling, mode) -> None:
    assert logprobs_mode(sampling) == mode
    check_mode(sampling, mode)


def test_a_temperature_together_with_a_cut_is_refused_and_every_setting_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        logprobs_mode(Sampling(temperature=0.7, top_p=0.9, top_k=20))
    assert "at temperature 0.7 together with top_p 0.9, top_k 20" in str(caught.value)
    assert "Set explorer.rollout_model.temperature to 1, or leave out" in str(caught.value)


def test_a_request_outside_of_the_mode_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"^top_p 0\.9, min_response_tokens 2: this engine was"):
        check_mode(Sampling(top_p=0.9, min_response_tokens=2), "processed_logprobs")
    with pytest.raises(ModelError, match=r"^temperature is 0\.7: this engine was started for"):
        check_mode(Sampling(temperature=0.7), "raw_logprobs")
    with pytest.raises(ModelError, match=r"^temperature is 0\.001; vLLM samples at 0\.01"):
        check_mode(Sampling(temperature=0.001), "processed_logprobs")
