"""A plugin full of mistakes, each of which the kit must find."""

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


def _parts(module, **classes):
    return {name: f"{module}:{target}" for name, target in classes.items()}


@hookimpl
def trinity_workflows():
    return _parts(
        "wrong_workflow_parts",
        tokenises_again="TokenisesAgain",
        hides_failures="HidesFailures",
        wraps_failures="WrapsFailures",
        remembers="Remembers",
        shares_state="SharesState",
        leaves_a_thread="LeavesAThread",
        leaves_a_file="LeavesAFile",
        draws_at_random="DrawsAtRandom",
        changes_its_task="ChangesItsTask",
        returns_nothing="ReturnsNothing",
        rewards_nan="RewardsNaN",
        changes_lengths="ChangesLengths",
        makes_up_logprobs="MakesUpLogprobs",
        repeats_twice="RepeatsTwice",
        right="Right",
        right_async="RightAsync",
        right_multi_turn="RightMultiTurn",
        renders_again="RendersAgain",
        needs_a_url="NeedsAUrl",
        has_no_run="HasNoRun",
    ) | _parts(
        "wrong_conduct_parts",
        never_returns="NeverReturns",
        ends_the_process="EndsTheProcess",
        ignores_overflow="IgnoresOverflow",
        seeds_the_world="SeedsTheWorld",
        renames_the_keys="RenamesTheKeys",
    )


@hookimpl
def trinity_reward_fns():
    return _parts(
        "wrong_reward_parts",
        nan_for_empty="NaNForEmpty",
        chokes_on_braces="ChokesOnBraces",
        raises_on_odd_text="RaisesOnOddText",
        counts_calls="CountsCalls",
        grades_on_a_curve="GradesOnACurve",
        returns_a_number="ReturnsANumber",
        keeps_its_first_truth="KeepsItsFirstTruth",
        notes_its_score="NotesItsScore",
        takes_lists="TakesLists",
    ) | {
        **_parts(
            "wrong_conduct_parts",
            calls_exit="CallsExit",
            interrupts="Interrupts",
            takes_one_thread="TakesOneThread",
            writes_to_the_conversation="WritesToTheConversation",
            refuses_to_be_built="RefusesToBeBuilt",
        ),
        "stays_at_home": "wrong_ray_parts:StaysAtHome",
        "ends_the_worker": "wrong_fatal_parts:EndsTheWorker",
    }


@hookimpl
def trinity_advantage_fns():
    claims = ComponentSpec(
        "wrong_advantage_parts:TeachesEqualRewards",
        provides=frozenset({"zero_for_equal_rewards"}),
    )
    return {
        "claims_zero": claims,
        "args_model_is_missing": ComponentSpec(
            "wrong_advantage_parts:TeachesEqualRewards", args_model="wrong_advantage_parts:Model"
        ),
        **_parts(
            "wrong_advantage_parts",
            claims_nothing="TeachesEqualRewards",
            reads_masked="ReadsMasked",
            unmasks_all="UnmasksAll",
            teaches_masked="TeachesMasked",
            groups_by_place="GroupsByPlace",
            divides_by_spread="DividesBySpread",
            carries_gradient="CarriesGradient",
            hidden="hidden",
            wrong_base="WrongBase",
            missing="Missing",
            needs_argument="NeedsArgument",
        ),
        **_parts(
            "wrong_conduct_parts",
            turns_gradients_off="TurnsGradientsOff",
            seeds_torch="SeedsTorch",
            scales_rewards="ScalesRewards",
            keeps_a_baseline="KeepsABaseline",
        ),
        "backwards": "wrong_algorithm_parts:Backwards",
    }


@hookimpl
def trinity_policy_loss_fns():
    claims = ComponentSpec(
        "wrong_loss_parts:TeachesWithoutAdvantage",
        provides=frozenset({"zero_for_zero_advantages"}),
    )
    return {
        "claims_zero": claims,
        **_parts(
            "wrong_loss_parts",
            counts_padding="CountsPadding",
            masks_too_late="MasksTooLate",
            is_a_vector="IsAVector",
            overflows="Overflows",
            wrong_normalizer="WrongNormalizer",
            metrics_are_tensors="MetricsAreTensors",
            forgets_slowly="ForgetsSlowly",
            right="Right",
        ),
        **_parts(
            "wrong_gradient_parts",
            is_detached="IsDetached",
            is_constant="IsConstant",
            goes_backward_itself="GoesBackwardItself",
            is_double="IsDouble",
            forgets_the_sign="ForgetsTheSign",
            punishes_all="PunishesAll",
        ),
        **_parts(
            "wrong_conduct_parts",
            crashes="Crashes",
            makes_doubles="MakesDoubles",
            masks_in_place="MasksInPlace",
        ),
    }


@hookimpl
def trinity_sample_strategies():
    return _parts(
        "wrong_strategy_parts",
        right="RightStrategy",
        drops_one="DropsOne",
        repeats_one="RepeatsOne",
        forgets_what_it_holds="ForgetsWhatItHolds",
        halves_batches="HalvesBatches",
        goes_on_after_the_end="GoesOnAfterTheEnd",
        makes_a_batch_of_nothing="MakesABatchOfNothing",
        loses_by_a_timeout="LosesByATimeout",
        waits_an_hour="WaitsAnHour",
        metric_is_a_word="MetricIsAWord",
        takes_nothing_back="TakesNothingBack",
    ) | {
        "claims_an_order": ComponentSpec(
            "wrong_strategy_parts:ClaimsAnOrder", provides=frozenset({"in_order"})
        ),
        **_parts(
            "wrong_conduct_parts", reads_for_ever="ReadsForEver", rewards_the_late="RewardsTheLate"
        ),
    }


@hookimpl
def trinity_kl_fns():
    needs = frozenset({"teacher_logprob"})
    return {
        "teacher": ComponentSpec("wrong_algorithm_parts:TeacherKL", needs=needs),
        **_parts(
            "wrong_estimate_parts",
            sums_rows="SumsRows",
            adds_a_bonus="AddsABonus",
            reads_masked="ReadsMaskedKL",
            has_the_wrong_sign="HasTheWrongSign",
        ),
        **_parts("wrong_conduct_parts", clamps_in_place="ClampsInPlace"),
    }


@hookimpl
def trinity_entropy_loss_fns():
    return _parts(
        "wrong_estimate_parts",
        is_a_row="IsARow",
        reads_masked="ReadsMaskedEntropy",
        punishes_doubt="PunishesDoubt",
        is_cut_off="IsCutOff",
        adds_up="AddsUp",
    ) | _parts("wrong_conduct_parts", rounds_entropy="RoundsEntropy")


@hookimpl
def trinity_experience_operators():
    return _parts(
        "wrong_estimate_parts",
        counts_in_words="CountsInWords",
        repeats_the_best="RepeatsTheBest",
        unmasks_all="UnmasksAllRows",
    ) | _parts("wrong_conduct_parts", hides_the_last_token="HidesTheLastToken")


@hookimpl
def trinity_task_selectors():
    return _parts(
        "wrong_estimate_parts", goes_beyond="GoesBeyond", forgets_its_place="ForgetsItsPlace"
    )


@hookimpl
def trinity_priority_fns():
    return _parts(
        "wrong_estimate_parts",
        needs_a_version="NeedsAVersion",
        counts_judgements="CountsJudgements",
    ) | _parts("wrong_conduct_parts", counts_uses="CountsUses")


@hookimpl
def trinity_reply_parsers():
    return _parts(
        "wrong_reply_parsers",
        raises_on_bad_json="RaisesOnBadJson",
        repairs_a_call="RepairsACall",
        numbers_its_calls="NumbersItsCalls",
        is_silent_without_tools="IsSilentWithoutTools",
    )


@hookimpl
def trinity_algorithm_types():
    waits = ComponentSpec(
        "wrong_algorithm_parts:NeedsATeacher", needs=frozenset({"teacher_logprob"})
    )
    return {
        "says_what_it_needs": waits,
        **_parts(
            "wrong_algorithm_parts",
            right="Grouped",
            names_nothing="NamesNothing",
            misspells_a_key="MisspellsAKey",
            needs_a_teacher="NeedsATeacher",
            unlearns_what_is_good="UnlearnsWhatIsGood",
        ),
    }


@hookimpl
def trinity_storages():
    counts = ComponentSpec(
        "wrong_storage_parts:ClaimsToCount",
        provides=frozenset({"waiting", "put_back", "length", "counts"}),
    )
    best = ComponentSpec(
        "wrong_storage_parts:GivesTheBest",
        provides=frozenset({"waiting", "put_back", "own_order"}),
    )
    return {"claims_to_count": counts, "gives_the_best": best} | _parts(
        "wrong_storage_parts",
        right="RightStorage",
        drops_the_last="DropsTheLast",
        gives_one_twice="GivesOneTwice",
        gives_the_newest="GivesTheNewest",
        forgets_the_mask="ForgetsTheMask",
        takes_too_early="TakesTooEarly",
        wakes_nobody="WakesNobody",
        never_ends="NeverEnds",
        waits_for_one="WaitsForOne",
        puts_back_last="PutsBackLast",
        has_no_lock="HasNoLock",
        half_a_state="HalfAState",
    )


@hookimpl
def trinity_trainers():
    return _parts(
        "wrong_trainer_parts",
        right="RightTrainer",
        teaches_nothing="TeachesNothing",
        counts_from_one="CountsFromOne",
        never_copies="NeverCopies",
        forgets_the_optimizer="ForgetsTheOptimizer",
        saves_no_model="SavesNoModel",
        changes_its_batch="ChangesItsBatch",
        swallows_nan="SwallowsNaN",
        tells_tensors="TellsTensors",
    )


@hookimpl
def trinity_rollout_engines():
    seeded = ComponentSpec("wrong_engine_parts:DrawsInOrder", provides=frozenset({"seeded_by_key"}))
    right = ComponentSpec("wrong_engine_parts:RightEngine", provides=frozenset({"seeded_by_key"}))
    return {
        "right": right,
        "draws_in_order": seeded,
        "stops_nowhere": ComponentSpec(
            "wrong_engine_parts:StopsNowhere", provides=frozenset({"stop_strings"})
        ),
        "holds_to_nothing": ComponentSpec(
            "wrong_engine_parts:HoldsToNothing", provides=frozenset({"structure"})
        ),
        "scores_too_well": ComponentSpec(
            "wrong_engine_parts:ScoresTooWell", provides=frozenset({"scores"})
        ),
        **_parts(
            "wrong_engine_parts",
            gives_one_only="GivesOneOnly",
            draws_once="DrawsOnce",
            goes_on_too_long="GoesOnTooLong",
            tells_the_cut_softmax="TellsTheCutSoftmax",
            takes_the_second="TakesTheSecond",
            keeps_old_weights="KeepsOldWeights",
            answers_when_closed="AnswersWhenClosed",
            dies_of_a_cancel="DiesOfACancel",
            shares_its_prompt="SharesItsPrompt",
            counts_runs="CountsRuns",
        ),
    }


@hookimpl
def trinity_sync_methods():
    return _parts(
        "wrong_sync_parts",
        right="RightSync",
        forgets_the_last="ForgetsTheLast",
        changes_the_type="ChangesTheType",
        returns_nothing="ReturnsNothing",
        hides_failures="HidesFailures",
        syncs_once="SyncsOnce",
    )


@hookimpl
def trinity_advisors():
    return _parts(
        "wrong_advisor_parts",
        wants_every_metric="WantsEveryMetric",
        marks_the_metrics="MarksTheMetrics",
        always_complains="AlwaysComplains",
        thinks_long="ThinksLong",
    )


@hookimpl
def trinity_monitors():
    return _parts(
        "wrong_monitor_parts",
        right="RightMonitor",
        chokes_on_nan="ChokesOnNaN",
        adds_the_step="AddsTheStep",
        only_goes_on="OnlyGoesOn",
        closes_once="ClosesOnce",
        writes_over="WritesOver",
        shares_a_file="SharesAFile",
        has_no_base="HasNoBase",
    )
