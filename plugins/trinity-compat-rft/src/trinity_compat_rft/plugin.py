"""Name the parts that Trinity-RFT's configurations name, and serve its import paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.extend import AssetSpec, hookimpl

from trinity_compat_rft.parts import REWARD_FNS, WORKFLOWS
from trinity_compat_rft.paths.table import FOREIGN_MODULES, PUBLISHED_MODULES, PUBLISHED_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend import ComponentSpec

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_published_modules() -> Mapping[str, str]:
    """Return the modules that are found under Trinity-RFT's import paths."""
    return PUBLISHED_MODULES | PUBLISHED_NAMES | FOREIGN_MODULES


@hookimpl
def trinity_workflows() -> Mapping[str, ComponentSpec]:
    """Return the published workflows that the core does not have."""
    return WORKFLOWS


@hookimpl
def trinity_reward_fns() -> Mapping[str, ComponentSpec]:
    """Return the published rewards that the core does not have."""
    return REWARD_FNS


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return what two workflows need: a judge behind an API, a database of mails."""
    return [
        AssetSpec(
            "judge",
            "the address of a judge's API, in OPENAI_BASE_URL",
            "nothing here",
            "trinity_compat_rft.workflows.rubric_judge:missing_judge",
            needed_by=("workflow/rubric_judge_openai_workflow",),
        ),
        AssetSpec(
            "mails",
            "a database of mails, in DEFAULT_EMAIL_DB_PATH",
            "about 1 GB of the published data set",
            "trinity_compat_rft.emails.mailbox:missing_mails",
            needed_by=("workflow/email_search_workflow",),
        ),
    ]
