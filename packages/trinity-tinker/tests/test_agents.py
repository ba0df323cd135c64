"""An adapter for each agent: trained on its own rows, sampled in one batch, kept by its name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.model import LoRAConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import GenerationRequest, RunKey
from trinity.errors import CheckpointError, ConfigError, DataError, ModelError
from trinity.trainer import sharing_trial
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.tiny import make_tiny_model
from trinity_tinker.agents.engine import MultiLoRAEngine
from trinity_tinker.agents.trainer import MultiLoRATrainer

pytest.importorskip("peft")

VOCAB = 384
SOLVER = LoRAConfig(name="solver", lora_rank=4, lora_alpha=8)
CHECKER = LoRAConfig(name="checker", lora_rank=2, lora_alpha=8, target_modules="q_proj,v_proj")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    torch.set_num_threads(1)
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), vocab=VOCAB)


@pytest.fixture
def a_trainer(tiny):
    def build(*lora, weight_decay=0.1, trainer=None, cls=MultiLoRATrainer, model_path=tiny):
        config = SimpleNamespace(
            algorithm=AlgorithmConfig(
                algorithm_type="grpo",
                advantage_fn="grpo",
                policy_loss_fn="ppo",
                kl_loss_fn="k2",
                entropy_loss_fn="none",
                optimizer={"lr": 1e-2, "weight_decay": weight_decay},
            ),
            trainer=TrainerConfig(max_token_len_per_gpu=64, **(trainer or {})),
            model=SimpleNamespace(
                trust_remote_code=False,
                critic_model_path="",
                lora_configs=list(lora),
                max_model_len=4096,
            ),
            explorer=ExplorerConfig(),
            audit="warn",
        )
        return cls(config, model_path=str(model_path), total_steps=10, seed=0)

    return build


def rows_of(name, *, seed=0, task=0):
    """Return a group of four rows that one agent said."""
    draw = torch.Generator().manual_seed(seed)
    prompt = torch.randint(3, VOCAB, (4,), generator=draw)
    return [
        Experience(
            tokens=torch.cat((prompt, torch.randint(3, VOCAB, (length,), generator=draw))),
            prompt_length=4,
            reward=float(run % 2),
            eid=EID(0, f"{task}-{name}", run),
            logprobs=[-5.0] * length,
            info={"adapter": name} if name else {},
        )
        for run, length in enumerate((3, 9, 5, 7))
    ]


def bits(parameters):
    return [one.detach().clone() for one in parameters]


def same(ours, theirs):
    return all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def scores(trainer, rows):
    return trainer._scorer.logprobs(ExperienceBatch.from_experiences(rows))


@pytest.mark.parametrize(("own", "other"), [(SOLVER, CHECKER), (CHECKER, SOLVER)])
def test_an_adapter_is_to_the_last_bit_what_a_run_with_it_alone_makes(
    a_trainer, own, other
) -> None:
    alone = a_trainer(own, cls=TorchTrainer)
    both = a_trainer(SOLVER, CHECKER)
    untouched = bits(both._adapters.parameters_of(other.name))

    for step in (1, 2, 3):
        rows = [rows_of(own.name, seed=step) for _ in range(2)]
        expected = alone.train_step(rows[0], step=step)
        found = both.train_step(rows[1], step=step)
        assert found["actor/loss"] == expected["actor/loss"]
        assert found["actor/grad_norm"] == expected["actor/grad_norm"]

    assert same(both._adapters.parameters_of(own.name), alone._adapters.parameters)
    assert same(both._adapters.parameters_of(other.name), untouched)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_what_rows_share_is_found_whichever_adapter_is_smaller(
    a_trainer, monkeypatch, names
) -> None:
    monkeypatch.setattr(sharing_trial, "_found", {})
    monkeypatch.setattr(sharing_trial, "MOST_NUMBERS", 1)  # only the smallest weight is compared
    large, small = (LoRAConfig(name=name, lora_rank=4 // (n + 1)) for n, name in enumerate(names))

    assert a_trainer(large, small)._policy.sharing.ways == {"chain", "cache", "mask"}


def test_an_adapter_without_rows_is_moved_by_neither_momentum_nor_weight_decay(a_trainer) -> None:
    trainer = a_trainer(SOLVER, CHECKER, weight_decay=0.5)
    trainer.train_step(rows_of("solver") + rows_of("checker", seed=1), step=1)
    before = bits(trainer._adapters.parameters_of("checker"))
    states = [trainer._optimizer.state[one] for one in trainer._adapters.parameters_of("checker")]

    trainer.train_step(rows_of("solver", seed=2), step=2)

    assert same(trainer._adapters.parameters_of("checker"), before)
    assert {float(state["step"]) for state in states} == {1.0}
    trainer.train_step(rows_of("checker", seed=3), step=3)
    assert not same(trainer._adapters.parameters_of("checker"), before)
    assert {float(state["step"]) for state in states} == {2.0}


def test_the_gradients_of_a_step_are_those_of_each_agent_s_rows_alone(a_trainer) -> None:
    """The loss is a mean over all tokens, so each agent's share is by its part of the tokens."""
    together = a_trainer(SOLVER, CHECKER, trainer={"grad_clip": 0.0})
    metrics = together.train_step(rows_of("solver") + rows_of("checker", seed=1), step=1)

    for name, seed in (("solver", 0), ("checker", 1)):
        alone = a_trainer(SOLVER, CHECKER, trainer={"grad_clip": 0.0})
        own = alone.train_step(rows_of(name, seed=seed), step=1)
        half = f"adapter/{name}/grad_norm"  # both have as many tokens
        assert metrics[half] == pytest.approx(own[half] / 2, rel=1e-4)
        assert metrics[f"adapter/{name}/loss"] == pytest.approx(own["actor/loss"] / 2, abs=1e-6)
        assert metrics[f"adapter/{name}/num_samples"] == 4.0
        assert metrics[f"adapter/{name}/reward"] == 0.5
    squares = [metrics[f"adapter/{name}/grad_norm"] ** 2 for name in ("solver", "checker")]
    assert metrics["actor/grad_norm"] == pytest.approx(sum(squares) ** 0.5, rel=1e-6)


def test_the_reference_of_all_agents_is_the_model_without_adapters(a_trainer) -> None:
    """Rows of both, so that adapters are switched while none may be on."""
    trainer = a_trainer(SOLVER, CHECKER)
    rows = rows_of("solver") + rows_of("checker", seed=1)
    trainer.train_step(rows, step=1)
    before, batch = scores(trainer, rows), ExperienceBatch.from_experiences(rows)

    found = trainer._scorer.reference_logprobs(batch)

    assert trainer._scorer.reference is None  # no second model was loaded
    assert torch.equal(found, trainer._scorer._logprobs(trainer._models.reference(), batch))
    for own in (slice(4), slice(4, 8)):
        assert (found - before)[own].abs().max() > 1e-3
    assert torch.equal(scores(trainer, rows), before)  # the adapters are on again


def test_rows_that_begin_alike_are_shared_within_an_agent_only(a_trainer) -> None:
    trainer = a_trainer(SOLVER, CHECKER)
    rows = rows_of("solver") + rows_of("checker")  # the same tokens

    plan = trainer._scorer.plan(ExperienceBatch.from_experiences(rows))

    for packs in plan:
        assert len({row // 4 for pack in packs for row in pack.rows}) == 1
    assert sorted(row for packs in plan for pack in packs for row in pack.rows) == list(range(8))


def test_a_row_without_a_known_adapter_is_refused_and_the_names_are_listed(a_trainer) -> None:
    trainer = a_trainer(SOLVER, CHECKER)

    for name in ("", "solvr"):
        with pytest.raises(DataError, match=r"no adapter named .*Known: checker, solver\."):
            trainer.train_step(rows_of(name), step=1)


def test_a_resumed_run_makes_the_same_numbers_and_peft_reads_each_adapter(
    a_trainer, tiny, tmp_path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole = a_trainer(SOLVER, CHECKER)
    whole.train_step(rows_of("solver"), step=1)  # the checker has no state of AdamW yet
    whole.train_step(rows_of("solver", seed=4) + rows_of("checker", seed=5), step=2)
    whole.save(tmp_path)

    resumed = a_trainer(SOLVER, CHECKER)
    resumed.load(tmp_path)

    expected = scores(whole, rows_of("checker"))
    assert torch.equal(scores(resumed, rows_of("checker")), expected)
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny), tmp_path / "adapter" / "checker"
    )
    [row, *_] = rows_of("checker")
    logits = model(input_ids=row.tokens[None]).logits[0, 3:-1].log_softmax(-1)
    own = logits.gather(1, row.tokens[4:, None])[:, 0]
    assert torch.allclose(own, expected[0, :3], atol=1e-5)
    for one in (whole, resumed):
        one.train_step(rows_of("checker", seed=6) + rows_of("solver", seed=7), step=3)
    assert same(whole._adapters.parameters, resumed._adapters.parameters)
    assert not list((tmp_path / "huggingface").glob("*.safetensors"))


def test_a_resumed_run_has_its_optimizer_states_whatever_the_order_of_the_entries(
    a_trainer, tmp_path
) -> None:
    checker = LoRAConfig(name="checker", lora_rank=4, lora_alpha=8)  # of the solver's shapes
    whole = a_trainer(SOLVER, checker)
    whole.train_step(rows_of("solver") + rows_of("checker", seed=1), step=1)
    whole.save(tmp_path)

    resumed = a_trainer(checker, SOLVER)
    resumed.load(tmp_path)

    for one in (whole, resumed):
        one.train_step(rows_of("solver", seed=2) + rows_of("checker", seed=3), step=2)
    for name in ("solver", "checker"):
        found = [one._adapters.parameters_of(name) for one in (whole, resumed)]
        assert same(*found)


def test_a_trainer_of_one_adapter_refuses_several(a_trainer) -> None:
    with pytest.raises(ConfigError, match="has 2 entries, and this trainer trains one adapter"):
        a_trainer(SOLVER, CHECKER, cls=TorchTrainer)


def test_a_checkpoint_of_other_agents_is_refused(a_trainer, tmp_path) -> None:
    a_trainer(SOLVER, CHECKER).save(tmp_path)
    critic = LoRAConfig(name="critic", lora_rank=4)

    with pytest.raises(CheckpointError, match="holds the adapters checker, solver, and model"):
        a_trainer(SOLVER, critic).load(tmp_path)


def test_agents_sampled_in_one_batch_have_the_trainer_s_log_probabilities(a_trainer, tiny) -> None:
    trainer = a_trainer(SOLVER, CHECKER)
    engine = MultiLoRAEngine(
        model_path=str(tiny), max_model_len=64, names=["solver", "checker"], in_lockstep=False
    )
    for step in (1, 2):
        trainer.train_step(rows_of("solver") + rows_of("checker", seed=1), step=step)
    engine.load_weights(trainer.snapshot(copy=False))

    futures = [
        engine.submit(
            GenerationRequest(
                prompt_token_ids=(5, 6, 7),
                key=RunKey(run=run, request=place),
                max_new_tokens=12,
                ignore_eos=True,
                adapter=name,
            )
        )
        for run in range(3)
        for place, name in enumerate(("solver", "checker"))
    ]
    rows = []
    for number, future in enumerate(futures):
        [reply] = future.result(60)
        rows.append(
            Experience(
                tokens=[5, 6, 7, *reply.token_ids],
                prompt_length=3,
                logprobs=list(reply.logprobs),
                info={"adapter": ("solver", "checker")[number % 2]},
            )
        )
    engine.close()

    found = scores(trainer, rows)
    told = torch.stack([row.logprobs for row in rows])
    assert (found - told).abs().max() < 1e-5
    other = [row for row in rows if row.info["adapter"] == "solver"]
    for row in other:
        row.info["adapter"] = "checker"
    assert (scores(trainer, other) - told[::2]).abs().max() > 1e-3  # they are two models


def test_the_engine_knows_the_names_from_its_start_and_no_others(tiny) -> None:
    engine = MultiLoRAEngine(model_path=str(tiny), max_model_len=64, names=["solver", "checker"])

    with pytest.raises(ModelError, match="adapter is solvr"):
        engine.submit(GenerationRequest(prompt_token_ids=(5,), adapter="solvr"))
    with pytest.raises(ModelError, match="scores no given tokens"):
        engine.score([5, 6, 7])
    engine.close()


def test_a_snapshot_of_other_adapters_is_refused(a_trainer, tiny) -> None:
    engine = MultiLoRAEngine(model_path=str(tiny), max_model_len=64, names=["solver", "critic"])

    with pytest.raises(ModelError, match="other weights than the adapters solver, critic"):
        engine.load_weights(a_trainer(SOLVER, CHECKER).snapshot(copy=False))
    engine.close()
