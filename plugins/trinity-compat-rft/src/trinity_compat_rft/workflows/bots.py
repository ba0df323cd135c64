"""Mathematical questions as the BOTS data sets hold them: messages, and columns within columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trinity_compat_rft.workflows.math_boxed import MathBoxedWorkflow

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["BOTSMathBoxedWorkflow", "BOTSRefEvalCollectMathBoxedWorkflow"]

LOG_FILE = "bots_ref_eval_log.jsonl"  # unless workflow_args.log_file says another


class BOTSMathBoxedWorkflow(MathBoxedWorkflow):
    """As ``math_boxed_workflow``; the prompt's column holds the messages themselves.

    Its truth stands in a column within a column, ``reward_model.ground_truth``.
    """

    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {
            "prompt": [{"role": "user", "content": "What is 40 + 6?"}],
            "reward_model": {"ground_truth": "46"},
        },
        "other_raw_task": {
            "prompt": [{"role": "user", "content": "What is 30 + 9?"}],
            "reward_model": {"ground_truth": "39"},
        },
        "format_args": {"prompt_key": "prompt", "response_key": "reward_model.ground_truth"},
    }

    def format_messages(self) -> list[dict[str, str]]:
        """Return the row's messages; a text is one question."""
        given: Any = self.task_desc  # Any: a cell of somebody's data
        if isinstance(given, str):
            return super().format_messages()
        return [dict(message) for message in given]


class BOTSRefEvalCollectMathBoxedWorkflow(BOTSMathBoxedWorkflow):
    """The same; adds a line to a file for each row: the rewards of its runs.

    ``workflow_args.log_file`` names the file, ``bots_ref_eval_log.jsonl`` unless given. A line is
    ``{"model_version": ..., "rewards": [...], "question": ..., "truth": ...}``.
    """

    conformance_args: ClassVar[dict[str, Any]] = {
        **BOTSMathBoxedWorkflow.conformance_args,
        "workflow_args": {"log_file": "/dev/null"},
    }

    def score(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with rewards, which the file notes."""
        scored = super().score(responses)
        line = {
            "model_version": self.model.model_version,
            "rewards": [response.reward for response in scored],
            "question": self.task_desc,
            "truth": self.truth,
        }
        path = Path(self.task.workflow_args.get("log_file", LOG_FILE))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:  # one write a line
            file.write(json.dumps(line) + "\n")
        return scored
