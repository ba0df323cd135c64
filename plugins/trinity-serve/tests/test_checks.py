"""What is said against a service before it starts."""

from __future__ import annotations

import pytest
from trinity.common.config import Machine, check, resolve
from trinity.common.config.problem import listed
from trinity.errors import ConfigError
from trinity.runtime.preflight import refuse_over_ray

CPU = Machine(num_gpus=0, num_cores=2, has_bf16=False)
GPUS = Machine(num_gpus=8, num_cores=64, has_bf16=True)


@pytest.fixture
def service(a_config):
    """Return a function that gives problems and notes of a service of these settings."""

    def run(*settings: str, machine: Machine = CPU) -> str:
        config = resolve(a_config("mode=serve", *settings), machine)
        return "\n".join([*listed(check(config, machine)), *config.notes])

    return run


def test_a_service_needs_no_tasks(service) -> None:
    assert service("trainer={save_interval: 4}", "explorer.db_url=serve.db") == ""


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "explorer.db_url=postgresql://host/db",
            "explorer.db_url: 'postgresql://host/db' is not a SQLite file, but mode serve stores "
            "recorded calls in one. Give a path, or leave it out.",
        ),
        (
            "algorithm.optimizer.lr_scheduler_type=cosine",
            "lr_scheduler_type: is cosine, which needs the number of all steps. A service runs "
            "until it is stopped: use constant, or set trainer.total_steps.",
        ),
        (
            "algorithm.optimizer.lr_warmup_steps_ratio=0.1",
            "is a fraction of all steps, but a service runs until it is stopped. Set "
            "lr_warmup_steps instead, or trainer.total_steps.",
        ),
        ("explorer.proxy_port=70000", "less than or equal to 65535"),
        (
            "explorer.auxiliary_models=[{name: judge, external_model_config: {enable: true}}]",
            "explorer.auxiliary_models: has 'judge' behind an external API, and a service does "
            "not proxy APIs. Remove it; clients can call that API themselves.",
        ),
    ],
)
def test_what_a_service_cannot_do_is_said_before_it_starts(service, setting, message) -> None:
    try:
        said = service("trainer={save_interval: 4}", setting)
    except ConfigError as error:
        said = str(error)

    assert message in said


def test_a_service_that_nobody_reads_from_is_refused(service) -> None:
    assert (
        "storage_type: is queue, but without a section trainer nothing reads the queue. "
        "Add a section trainer, or use file, and give its path."
    ) in service()


def test_all_engines_but_one_may_stay_up(service) -> None:
    settings = ["trainer={save_interval: 4}", "explorer.min_running_model_num=2"]
    settings += ["explorer.rollout_model.engine_num=2"]

    assert (
        "explorer.min_running_model_num: is 2 of 2 engines, so no engine could ever load "
        "new weights. Use 1 or less; engines load weights one after the other."
    ) in service(*settings, machine=GPUS)


def test_a_service_over_ray_is_refused_in_a_sentence(a_config) -> None:
    config = resolve(a_config("mode=serve"), CPU)

    refuse_over_ray([config], local=True)
    with pytest.raises(ConfigError, match=r"^mode serve keeps .* trinity run --local --con"):
        refuse_over_ray([config], local=False)
