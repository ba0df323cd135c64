"""Adapters in place of the weights; skipped where peft is not installed."""

from __future__ import annotations

import importlib.util
import json
import weakref
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from trinity.common.config.model import LoRAConfig
from trinity.common.ports.weights import TensorStream
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import CheckpointError, ConfigError, NotSupportedYetError
from trinity.synchronizer.memory_sync import MemorySync
from trinity.trainer.lora import is_own_reference, travel_alone

needs_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="no peft here")
SMALL = [LoRAConfig(lora_rank=4, lora_alpha=8)]
KL = {"kl_loss_fn": "k2", "kl_loss_fn_args": {"kl_coef": 0.3}}  # asks the reference


def score(trainer, rows):
    from trinity.common.batch import ExperienceBatch

    return trainer._scorer.logprobs(ExperienceBatch.from_experiences(rows))


def reference(trainer, rows):
    """Return what the trainer takes for the reference's scores, and those of a model that is read.

    The second shares no tensor with the first.
    """
    from trinity.common.batch import ExperienceBatch

    batch = ExperienceBatch.from_experiences(rows)
    found = trainer._scorer.reference_logprobs(batch)
    return found, trainer._scorer._logprobs(trainer._models.reference(), batch)


@pytest.fixture
def alike(an_experience):
    """Return a builder of two groups of three rows, of a prompt of 12 tokens each."""

    def build():
        draw = torch.Generator().manual_seed(3)
        prompts = torch.randint(3, 384, (2, 12), generator=draw)
        return [
            an_experience(
                tokens=torch.cat(
                    (prompts[row // 3], torch.randint(3, 384, (4 + row,), generator=draw))
                ),
                prompt=12,
                reward=float(row % 2),
                task=row // 3,
                run=row % 3,
                logprobs=[-5.0] * (4 + row),
            )
            for row in range(6)
        ]

    return build


@pytest.mark.skipif(importlib.util.find_spec("peft") is not None, reason="peft is here")
def test_without_peft_the_extra_is_named(a_trainer) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'trinity-core\[lora\]'"):
        a_trainer(lora=SMALL)


@needs_peft
@pytest.mark.parametrize("model", ["tiny", "with_buffers"])  # the second has experts and a router
def test_only_the_adapters_are_trained_and_snapshots_hold_the_sum(
    a_trainer, ragged, model, request
) -> None:
    folder = request.getfixturevalue(model)
    plain = a_trainer(model_path=folder)
    trainer = a_trainer(model_path=folder, lora=SMALL, lr=1e-2)
    base = {name: p.clone() for name, p in trainer.model.named_parameters() if "lora_" not in name}
    before = score(trainer, ragged())

    trainer.train_step(ragged(), step=1)

    for name, parameter in trainer.model.named_parameters():
        assert "lora_" in name or torch.equal(parameter, base[name])
    after = score(trainer, ragged())
    assert (after - before).abs().max() > 1e-3
    snapshot = trainer.snapshot(copy=False).tensors
    assert bool(trainer._adapters.factors()) == (model == "tiny")  # experts' are no two factors
    assert snapshot.keys() == plain.snapshot(copy=False).tensors.keys()
    with torch.no_grad():
        for name, parameter in plain.model.named_parameters():
            parameter.copy_(snapshot[name])
    assert torch.allclose(score(plain, ragged()), after, atol=1e-5)


@needs_peft
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({}, 1e-4), ({"gradient_checkpointing": True, "precision": "bfloat16"}, 0.2)],
)
def test_a_run_goes_on_from_a_checkpoint_which_holds_adapters_and_a_merged_model(
    a_trainer, ragged, tmp_path, options, tolerance
) -> None:
    whole = a_trainer(lora=SMALL, trainer=options)
    whole.train_step(ragged(), step=1)
    whole.save(tmp_path)
    resumed = a_trainer(lora=SMALL, trainer=options)
    resumed.load(tmp_path)
    merged = a_trainer(model_path=tmp_path / "huggingface", trainer=options)

    assert torch.allclose(score(merged, ragged()), score(whole, ragged()), atol=tolerance)
    expected, got = whole.train_step(ragged(), step=2), resumed.train_step(ragged(), step=2)
    assert got["actor/loss"] == expected["actor/loss"]
    ours, theirs = resumed.snapshot(copy=True).tensors, whole.snapshot(copy=True).tensors
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@needs_peft
def test_frozen_weights_have_the_type_that_is_computed_in_and_adapters_are_float32(
    a_trainer, ragged
) -> None:
    plain = a_trainer(lora=SMALL)
    rounded = a_trainer(lora=SMALL, trainer={"precision": "bfloat16"})

    expected, found = (one.train_step(ragged(), step=1) for one in (plain, rounded))

    types = {("lora_" in name, p.dtype) for name, p in rounded.model.named_parameters()}
    assert types == {(False, torch.bfloat16), (True, torch.float32)}
    assert found["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=0.05)
    assert found["actor/loss"] == pytest.approx(expected["actor/loss"], abs=0.02)


@needs_peft
def test_adapters_of_a_folder_are_gone_on_with(a_trainer, ragged, tmp_path) -> None:
    first = a_trainer(lora=SMALL)
    first.train_step(ragged(), step=1)
    first.save(tmp_path)

    second = a_trainer(lora=[LoRAConfig(path=str(tmp_path / "adapter"))])

    assert torch.equal(score(second, ragged()), score(first, ragged()))


@needs_peft
def test_peft_itself_loads_the_adapters_of_a_checkpoint(a_trainer, ragged, tmp_path) -> None:
    from peft import PeftModel

    trainer = a_trainer(lora=SMALL, lr=1e-2)
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)

    loaded = PeftModel.from_pretrained(a_trainer().model, tmp_path / "adapter").merge_and_unload()

    wanted = trainer.snapshot(copy=False).tensors
    for name, parameter in loaded.named_parameters():
        assert torch.allclose(parameter, wanted[name], atol=1e-6), name


@needs_peft
def test_adapters_that_an_older_version_named_without_peft_s_prefix_are_gone_on_with(
    a_trainer, ragged, tmp_path
) -> None:
    from safetensors.torch import load_file, save_file

    first = a_trainer(lora=SMALL, lr=1e-2)
    first.train_step(ragged(), step=1)
    first.save(tmp_path)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(
        {name.removeprefix("base_model.model."): t for name, t in load_file(file).items()}, file
    )

    second = a_trainer(lora=[LoRAConfig(path=str(tmp_path / "adapter"))])

    assert torch.equal(score(second, ragged()), score(first, ragged()))


@needs_peft
@pytest.mark.parametrize(("more", "value"), [("use_dora", True), ("bias", "all")])
def test_a_folder_of_adapters_of_more_than_two_factors_is_refused(
    a_trainer, tmp_path, more, value
) -> None:
    import peft

    peft.LoraConfig(target_modules="all-linear", **{more: value}).save_pretrained(tmp_path)

    with pytest.raises(ConfigError, match=rf"holds no LoRA adapters: {more} trains more than the"):
        a_trainer(lora=[LoRAConfig(path=str(tmp_path))])


@needs_peft
def test_adapters_of_another_rank_are_refused(a_trainer, tmp_path) -> None:
    a_trainer(lora=SMALL).save(tmp_path)

    with pytest.raises(CheckpointError, match="of another rank"):
        a_trainer(lora=[LoRAConfig(lora_rank=2)]).load(tmp_path)


@needs_peft
@pytest.mark.parametrize(
    ("words", "names"),
    [("q_proj,v_proj", {"q_proj", "v_proj"}), ("all-linear", {"q_proj", "o_proj", "down_proj"})],
)
def test_the_layers_are_chosen(a_trainer, words, names) -> None:
    trainer = a_trainer(lora=[LoRAConfig(target_modules=words)])

    adapted = {
        name.split(".")[-4] for name, _ in trainer.model.named_parameters() if "lora_" in name
    }

    assert names <= adapted
    assert "lm_head" not in adapted


@needs_peft
def test_names_that_fit_no_layer_are_refused(a_trainer) -> None:
    with pytest.raises(ConfigError, match="target_modules fits no layer"):
        a_trainer(lora=[LoRAConfig(target_modules="nothing")])


class Feeding:
    """What decides whether adapters travel alone, as a resolved configuration says it."""

    def __init__(self, config, **changes):
        self.mode = changes.get("mode", "both")
        self.model, self.trainer = config.model, config.trainer
        self.model.model_path = "here"
        rollout = SimpleNamespace(
            engine_type=changes.get("engine", "transformers"),
            dtype=changes.get("dtype", "float32"),
            model_path=changes.get("path"),
        )
        self.explorer = SimpleNamespace(rollout_model=rollout)


@needs_peft
def test_an_engine_gets_the_adapters_alone_and_has_the_weights_with_them_in(
    a_trainer, ragged, tiny
) -> None:
    """Rank 4 in seven matrices of two layers, against all of the weights."""
    trainer = a_trainer(lora=SMALL, lr=1e-2)
    trainer.train_step(ragged(), step=1)
    whole = trainer.snapshot(copy=False).tensors
    trainer._config = Feeding(trainer._config)

    snapshot = trainer.snapshot(copy=False)

    assert len(snapshot.tensors) == 2 * 7 * 2
    engine = TransformersEngine(model_path=str(tiny), max_model_len=64)
    engine.load_weights(snapshot)
    own = dict(engine._module.named_parameters())
    assert max((own[name] - whole[name]).abs().max() for name in own) < 1e-6
    engine.close()
    sizes = [
        sum(t.numel() * t.element_size() for t in one.values()) for one in (snapshot.tensors, whole)
    ]
    assert sizes[0] < 0.2 * sizes[1]


@pytest.fixture
def held(monkeypatch):
    """Return how many sums of a weight and an adapter were there at once, at each that was made."""
    made, counts = [], []
    real = TensorStream.__getitem__

    def counted(self, name):
        tensor = real(self, name)
        if name.endswith("proj.weight"):
            made.append(weakref.ref(tensor))
            counts.append(sum(one() is not None for one in made))
        return tensor

    monkeypatch.setattr(TensorStream, "__getitem__", counted)
    return counts


@needs_peft
def test_engines_and_checkpoints_get_the_sums_without_all_of_them_being_there_at_once(
    a_trainer, ragged, tiny, tmp_path, held
) -> None:
    """Seven matrices of two layers have adapters."""
    trainer = a_trainer(lora=SMALL, lr=1e-2)
    trainer.train_step(ragged(), step=1)
    wanted = {name: one.clone() for name, one in trainer.snapshot(copy=True).tensors.items()}
    engines = [TransformersEngine(model_path=str(tiny), max_model_len=64) for _ in range(2)]
    held.clear()

    MemorySync(engines).sync(lambda: trainer.snapshot(copy=False))
    trainer.save(tmp_path)

    assert len(held) == (2 + 1) * 14
    assert max(held) <= 2  # one is read while the one before is let go of
    saved = load_file(tmp_path / "huggingface" / "model.safetensors")
    for tensors in (*(dict(one._module.named_parameters()) for one in engines), saved):
        assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
    for engine in engines:
        engine.close()


@needs_peft
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"mode": "train"}, False),  # somebody else reads whole weights
        ({"dtype": "bfloat16"}, False),  # the engine's base model is another
        ({"path": "elsewhere"}, False),
        ({"engine": None}, False),
    ],
)
def test_adapters_travel_alone_where_the_engine_has_the_trainer_s_base_model(
    a_trainer, changes, expected
) -> None:
    trainer = a_trainer(lora=SMALL)

    assert travel_alone(Feeding(trainer._config, **changes)) is expected


@needs_peft
def test_a_checkpoint_has_the_end_tokens_of_the_model(a_trainer, tiny, tmp_path) -> None:
    a_trainer(lora=SMALL).save(tmp_path)

    first, saved = (
        json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
        for folder in (tiny, tmp_path / "huggingface")
    )
    assert saved == first
    assert len(saved) == 2  # the model's config names one of them


@needs_peft
def test_a_checkpoint_has_what_of_a_model_is_never_trained(
    a_trainer, with_buffers, tmp_path
) -> None:
    trainer = a_trainer(lora=SMALL, model_path=with_buffers)
    trainer.save(tmp_path)

    saved = load_file(tmp_path / "huggingface" / "model.safetensors")
    assert saved["model.layers.1.mlp.gate.e_score_correction_bias"].tolist() == [0.5] * 4


@needs_peft
def test_an_adapter_of_an_embedding_that_is_the_output_layer_too_is_refused(a_trainer) -> None:
    both = [LoRAConfig(lora_rank=4, lora_alpha=8, target_modules="embed_tokens,q_proj")]
    with pytest.raises(NotSupportedYetError, match=r"lora_configs\.0\.target_modules .* embedding"):
        a_trainer(lora=both)


@needs_peft
@pytest.mark.parametrize("model", ["tiny", "with_buffers"])  # the second has experts and a router
@pytest.mark.parametrize(
    "options",
    [{}, {"prefix_sharing": "off"}, {"prefix_sharing": "off", "gradient_checkpointing": True}],
    ids=["shared", "apart", "recomputed"],
)
def test_the_reference_is_the_trained_model_without_its_adapters_to_the_last_bit(
    a_trainer, alike, model, options, request
) -> None:
    folder = request.getfixturevalue(model)
    trainer = a_trainer(model_path=folder, lora=SMALL, lr=1e-2, trainer=options, **KL)
    trainer.train_step(alike(), step=1)
    before = score(trainer, alike())

    found, expected = reference(trainer, alike())

    assert trainer._scorer.reference is None  # no second model was loaded
    assert torch.equal(found, expected)
    assert (found - before).abs().max() > 1e-3
    assert torch.equal(score(trainer, alike()), before)  # the adapters are on again
    assert all(one.requires_grad for one in trainer._adapters.parameters)


@needs_peft
@pytest.mark.parametrize("recomputes", [False, True])
def test_steps_have_the_bits_of_those_with_a_reference_of_its_own(
    a_trainer, ragged, recomputes
) -> None:
    options = {"gradient_checkpointing": recomputes}
    own, apart = (a_trainer(lora=SMALL, lr=1e-2, trainer=options, **KL) for _ in range(2))
    apart._scorer._load_reference = apart._models.reference

    found, expected = (
        [
            {
                name: value
                for name, value in one.train_step(ragged(), step=step).items()
                if not name.startswith(("time/", "perf/"))
            }
            for step in (1, 2, 3)
        ]
        for one in (own, apart)
    )

    assert own._scorer.reference is None
    assert apart._scorer.reference is not None
    assert found == expected
    assert found[0]["actor/kl_loss"] == 0.0  # a new adapter adds nothing
    assert found[2]["actor/kl_loss"] > 0.0
    ours, theirs = (one.snapshot(copy=True).tensors for one in (own, apart))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@needs_peft
def test_with_bfloat16_a_new_adapter_is_at_no_distance_from_the_reference(
    a_trainer, ragged
) -> None:
    """One of its own would round what its layers add up, which beside adapters is float32."""
    trainer = a_trainer(lora=SMALL, lr=1e-2, trainer={"precision": "bfloat16"}, **KL)

    assert trainer.train_step(ragged(), step=1)["actor/kl_loss"] == 0.0
    assert trainer.train_step(ragged(), step=2)["actor/kl_loss"] > 0.0


@needs_peft
def test_adapters_are_on_again_after_a_reference_that_failed(
    a_trainer, ragged, monkeypatch
) -> None:
    trainer = a_trainer(lora=SMALL, lr=1e-2, **KL)
    trainer.train_step(ragged(), step=1)
    before, hidden = score(trainer, ragged()), trainer._policy.hidden

    def failing(inputs):
        hidden(inputs)
        raise torch.OutOfMemoryError("no memory is left")

    with monkeypatch.context() as patched:
        patched.setattr(trainer._policy, "hidden", failing)
        with pytest.raises(torch.OutOfMemoryError):
            reference(trainer, ragged())

    assert torch.equal(score(trainer, ragged()), before)
    assert all(one.requires_grad for one in trainer._adapters.parameters)


@needs_peft
def test_a_resumed_run_and_one_with_a_folder_compare_with_the_model_without_adapters(
    a_trainer, ragged, tmp_path
) -> None:
    first = a_trainer(lora=SMALL, lr=1e-2, **KL)
    first.train_step(ragged(), step=1)
    first.save(tmp_path)
    wanted = score(a_trainer(), ragged())
    resumed = a_trainer(lora=SMALL, lr=1e-2, **KL)
    resumed.load(tmp_path)
    folder = a_trainer(lora=[LoRAConfig(path=str(tmp_path / "adapter"))], **KL)

    for trainer in (first, resumed, folder):
        assert all(torch.equal(one, wanted) for one in reference(trainer, ragged()))
        assert trainer._scorer.reference is None
    expected, got = (one.train_step(ragged(), step=2) for one in (first, resumed))
    assert got["actor/kl_loss"] == expected["actor/kl_loss"] > 0.0


@needs_peft
def test_a_reference_is_loaded_where_the_adapters_have_changed_the_frozen_weights(
    a_trainer, ragged, tmp_path
) -> None:
    """PiSSA takes the largest singular values of a weight out of it when it is put in."""
    a_trainer(lora=SMALL).save(tmp_path)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"init_lora_weights": "pissa"}))
    trainer = a_trainer(lora=[LoRAConfig(path=str(tmp_path / "adapter"))], **KL)

    found, _ = reference(trainer, ragged())

    assert trainer._scorer.reference is not None
    assert torch.equal(found, score(a_trainer(), ragged()))


@needs_peft
def test_a_reference_is_loaded_where_more_than_the_adapters_is_trained(a_trainer) -> None:
    trainer = a_trainer(lora=SMALL, **KL)
    assert is_own_reference(trainer.model)

    trainer.model.base_model.norm.weight.requires_grad_(requires_grad=True)

    assert not is_own_reference(trainer.model)
    assert not is_own_reference(a_trainer().model)
