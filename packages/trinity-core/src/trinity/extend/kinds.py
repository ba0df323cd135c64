"""All kinds of components, each described once."""

from __future__ import annotations

from trinity.extend.kind import PLUGIN_MODE, Ability, Kind, Setting

_PORTS = "trinity.common.ports"
_ALGORITHM = "trinity.algorithm"
_BUFFER = "buffer.trainer_input.experience_buffer"
_TASKSETS = {  # where -> the modes that read it
    "buffer.explorer_input.tasksets.*": frozenset({"both", "explore"}),
    "buffer.explorer_input.eval_tasksets.*": frozenset({"both", "explore", "bench"}),
}
_EXPLORES = frozenset({"both", "explore", "bench", PLUGIN_MODE})
_TRAINS = frozenset({"both", "train", PLUGIN_MODE})
_RUNS_WORKFLOWS = frozenset({"both", "explore", "bench"})
_ALL = _EXPLORES | _TRAINS


def _methods(**words: str) -> tuple[Ability, ...]:
    """Return abilities whose meaning the docstring of the first method says."""
    return tuple(Ability(word=word, members=tuple(of.split(" "))) for word, of in words.items())


def _in_tasksets(key: str, args: str = "") -> tuple[Setting, ...]:
    return tuple(
        Setting(
            path=f"{place}.{key}",
            args=args and f"{place}.{args}",
            modes=modes,
            may_be_empty=True,
        )
        for place, modes in _TASKSETS.items()
    )


def _of_algorithm(*fields: str) -> tuple[Setting, ...]:
    paths = (f"algorithm.{field}" for field in fields)
    return tuple(Setting(path=path, args=f"{path}_args", may_be_empty=True) for path in paths)


_ALL_KINDS = (
    Kind(
        name="workflow",
        hook="trinity_workflows",
        contract="trinity.common.workflows.workflow:Workflow",
        provided=("task", "model", "auxiliary_models"),
        gets_all=True,
        settings=_in_tasksets("default_workflow_type"),
        abilities=(
            Ability(
                word="preflight",
                meaning="`check_arguments` is quick and loads nothing heavy, so `trinity config "
                "check` calls it too. Without it, a run calls it when it starts.",
            ),
        ),
    ),
    Kind(
        name="reward_fn",
        hook="trinity_reward_fns",
        contract="trinity.common.rewards:RewardFn",
        settings=_in_tasksets("default_reward_fn_type", "reward_fn_args"),
    ),
    Kind(
        name="advantage_fn",
        hook="trinity_advantage_fns",
        contract=f"{_ALGORITHM}.advantage_fn:AdvantageFn",
        settings=_of_algorithm("advantage_fn"),
        is_pure=True,
    ),
    Kind(
        name="policy_loss_fn",
        hook="trinity_policy_loss_fns",
        contract=f"{_ALGORITHM}.policy_loss_fn:PolicyLossFn",
        settings=_of_algorithm("policy_loss_fn"),
        is_pure=True,
    ),
    Kind(
        name="kl_fn",
        hook="trinity_kl_fns",
        contract=f"{_ALGORITHM}.kl_fn:KLFn",
        settings=_of_algorithm("kl_penalty_fn", "kl_loss_fn"),
        is_pure=True,
    ),
    Kind(
        name="entropy_loss_fn",
        hook="trinity_entropy_loss_fns",
        contract=f"{_ALGORITHM}.entropy_loss_fn:EntropyLossFn",
        settings=_of_algorithm("entropy_loss_fn"),
        is_pure=True,
    ),
    Kind(
        name="sample_strategy",
        hook="trinity_sample_strategies",
        contract=f"{_ALGORITHM}.sample_strategy:SampleStrategy",
        settings=_of_algorithm("sample_strategy"),
        abilities=(
            Ability(
                word="in_order",
                meaning="a batch is the next rows in order, nothing is dropped, and the time of "
                "the read does not matter. Without it, rollouts and training do not overlap.",
            ),
        ),
        is_pure=True,
    ),
    Kind(
        name="algorithm",
        hook="trinity_algorithm_types",
        contract=f"{_ALGORITHM}.algorithm:AlgorithmType",
        settings=(Setting(path="algorithm.algorithm_type"),),
    ),
    Kind(
        name="rollout_engine",
        hook="trinity_rollout_engines",
        contract=f"{_PORTS}:RolloutEngine",
        provided=(
            "model_path",
            "dtype",
            "seed",
            "max_model_len",
            "trust_remote_code",
            "cpu_kernels",
            "in_lockstep",
            "module",
        ),
        provided_section="explorer.rollout_model",
        settings=(Setting(path="explorer.rollout_model.engine_type", modes=_EXPLORES),),
        abilities=(
            Ability(
                word="busy_s",
                members=("busy_s",),
                meaning="it says how busy it is. Without it, the metric of the engines' load is 0.",
            ),
            *_methods(
                preflight="preflight", limits="limits", scores="score", in_flight="swap_weights"
            ),
            *_methods(sleep="sleep wake_up"),
            Ability(word="shares_module", argument="module"),
            Ability(
                word="lockstep",
                argument="in_lockstep",
                meaning="first requests of rollouts wait for each other, so that batches and "
                "numbers follow from the seed. Without it, `fixed` promises `same order` only.",
            ),
            Ability(
                word="stop_strings",
                attribute="takes_stop_strings",
                meaning="a request's `stop` and `stop_token_ids` end its replies. Without it, a "
                "request that has one of them fails and names it.",
            ),
            Ability(
                word="logprobs",
                meaning="log-probabilities of sampled tokens under the full softmax at their "
                "temperature. Without it, algorithms that need them are refused.",
            ),
            Ability(
                word="prefix_cache",
                meaning="shared prompt prefixes are computed once if `enable_prefix_caching` "
                "is true. Without it, each prompt is computed alone.",
            ),
            Ability(
                word="tensor_parallel",
                meaning="uses `tensor_parallel_size` GPUs, or that many processes without GPUs. "
                "Without it, a size above 1 is refused.",
            ),
            Ability(
                word="weights:memory",
                meaning="every engine: `load_weights` replaces all weights between two steps.",
            ),
            Ability(
                word="structure",
                attribute="takes_structure",
                meaning="replies match a request's `structure`. Without it, a request that has one "
                "fails and says so.",
            ),
            Ability(
                word="adapters",
                attribute="takes_adapters",
                meaning="`load_weights` takes LoRA adapters alone and adds them to the base model. "
                "Without it, whole weights travel, with the adapters in them.",
            ),
            Ability(
                word="weights:stream",
                attribute="takes_stream",
                meaning="`load_weights` reads each tensor once, in their order, so weights are "
                "loaded bucket by bucket. Without it, they are collected in CPU memory first.",
            ),
            Ability(
                word="penalties",
                attribute="takes_penalties",
                meaning="a request's penalties, `logit_bias` and `seed` count. Without it, a "
                "request that has one fails and names it.",
            ),
        ),
    ),
    Kind(
        name="reply_parser",
        hook="trinity_reply_parsers",
        contract=f"{_PORTS}:ReplyParser",
        settings=tuple(
            Setting(path=f"explorer.rollout_model.{key}", modes=_EXPLORES, may_be_empty=True)
            for key in ("tool_call_parser", "reasoning_parser")
        ),
        is_pure=True,
    ),
    Kind(
        name="trainer",
        hook="trinity_trainers",
        contract=f"{_PORTS}:Trainer",
        provided=("config", "model_path", "total_steps", "seed", "group"),
        settings=(Setting(path="trainer.trainer_type", modes=_TRAINS),),
        abilities=(
            Ability(
                word="shares_module",
                members=("module",),
                meaning="an engine that takes `module` may use the same model, where nobody can "
                "see the difference. Without it, the engine keeps weights of its own.",
            ),
            *_methods(trained_batch="trained_batch"),
            Ability(
                word="preflight",
                members=("preflight",),
                meaning="its class has `preflight(config)`, which returns what of a resolved "
                "configuration it cannot do, as problems of the configuration.",
            ),
            Ability(
                word="ranks",
                argument="group",
                meaning="it trains as one of several ranks: each rank gets every batch. "
                "Without it, trainer.num_ranks is 1.",
            ),
        ),
    ),
    Kind(
        name="sync_method",
        hook="trinity_sync_methods",
        contract=f"{_PORTS}:SyncMethod",
        provided=("engines", "sender", "config"),
        settings=(
            Setting(path="synchronizer.sync_method", modes=frozenset({"both", PLUGIN_MODE})),
        ),
        abilities=(
            Ability(
                word="sender",
                argument="sender",
                meaning="it transports weights from the trainer's process to the engines itself. "
                "`sender` is None in a run of one process; then it works like `memory`. Without "
                "it, weights go through Ray's object store.",
            ),
            Ability(
                word="one_machine",
                attribute="needs_one_machine",
                meaning="it works only if the trainer and all engines are on one machine; "
                "otherwise a run over Ray is refused after its processes have started. Without it, "
                "they may be on several machines.",
            ),
        ),
    ),
    Kind(
        name="storage",
        hook="trinity_storages",
        contract=f"{_PORTS}:Storage",
        provided=("config", "path", "chat_format", "total_epochs", "use", "priority_fn"),
        settings=(
            Setting(path=f"{_BUFFER}.storage_type"),
            Setting(path="buffer.trainer_input.auxiliary_buffers.*.storage_type"),
        ),
        abilities=(
            *_methods(
                waiting="waiting",
                state="state_dict load_state_dict",
                put_back="put_back",
                drop_older="drop_older",
                counts="counts",
                ledger="read_for begin_anew forget",
                groups="count_groups read_groups",
                standalone="connect",
                report="report",
                seal="seal",
            ),
            Ability(
                word="gives_again",
                members=("gives_again",),
                meaning="what was read can be read again. Without it, each is read once.",
            ),
            Ability(
                word="own_order",
                members=("order",),
                meaning="it says what is read first. Without it, what was written first is.",
            ),
            Ability(
                word="length",
                members=("__len__",),
                meaning="it says how many experiences all epochs give. Without it, mode `train` "
                "needs `trainer.total_steps` or `buffer.total_steps`.",
            ),
            Ability(
                word="in_order",
                attribute="is_in_order",
                meaning="reads return rows in the order of writes, also with several threads, and "
                "so does `waiting`. Without it, rollouts and training do not overlap.",
            ),
        ),
    ),
    Kind(
        name="priority_fn",
        hook="trinity_priority_fns",
        contract=f"{_PORTS}:PriorityFn",
        settings=(
            Setting(
                path=f"{_BUFFER}.replay_buffer.priority_fn",
                args=f"{_BUFFER}.replay_buffer.priority_fn_args",
                switch=f"{_BUFFER}.replay_buffer.enable",
            ),
        ),
        abilities=(
            Ability(
                word="state",
                members=("state_dict", "load_state_dict"),
                meaning="a checkpoint holds its state. Without it, a resumed run starts a new one.",
            ),
        ),
        is_pure=True,
    ),
    Kind(
        name="experience_operator",
        hook="trinity_experience_operators",
        contract=f"{_PORTS}:OperatorPort",
        settings=(
            Setting(
                path="data_processor.experience_pipeline.operators.*.name",
                args="data_processor.experience_pipeline.operators.*.args",
                modes=_EXPLORES,
            ),
        ),
    ),
    Kind(
        name="task_selector",
        hook="trinity_task_selectors",
        contract=f"{_PORTS}:TaskSelector",
        provided=("num_rows", "seed", "features"),
        settings=_in_tasksets("data_selector.selector_type", "data_selector.kwargs"),
        abilities=(
            Ability(
                word="feedback",
                members=("feedback",),
                meaning="its order follows how the tasks went. Without it, nobody tells it.",
            ),
        ),
    ),
    Kind(
        name="monitor",
        hook="trinity_monitors",
        contract=f"{_PORTS}:Monitor",
        provided=("directory", "role"),
        settings=(
            Setting(path="monitor.monitor_type", args="monitor.monitor_args", modes=_ALL),
            Setting(
                path="monitor.also.*.monitor_type", args="monitor.also.*.monitor_args", modes=_ALL
            ),
        ),
        abilities=_methods(flush="flush", samples="log_samples"),
    ),
    Kind(
        name="advisor",
        hook="trinity_advisors",
        contract=f"{_PORTS}:Advisor",
        provided=("config",),
        settings=(Setting(path="advisors.*", is_key=True),),
    ),
    Kind(
        name="endpoint",
        hook="trinity_endpoints",
        contract=f"{_PORTS}:EndpointOpener",
        provided=("host", "port", "logs_requests", "api_key"),
        settings=tuple(
            Setting(path=f"explorer.{key}", means="openai", modes=_RUNS_WORKFLOWS)
            for key in ("rollout_model.enable_openai_api", "auxiliary_models")
        ),
    ),
    Kind(
        name="run_mode",
        hook="trinity_run_modes",
        contract=f"{_PORTS}:RunMode",
        provided=("parts",),
        settings=(Setting(path="mode", modes=frozenset({PLUGIN_MODE})),),
        core_names=("both", "explore", "train", "bench"),
    ),
    Kind(
        name="sandbox",
        hook="trinity_sandboxes",
        contract=f"{_PORTS}:Sandbox",
        core_names=("auto",),
        is_pure=True,
    ),
)
KINDS = {kind.name: kind for kind in _ALL_KINDS}
