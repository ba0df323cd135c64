"""What every rollout engine needs beside its model: refusing requests, and answers given up."""

from trinity.common.generation.checks import check_prompt, check_request
from trinity.common.generation.pending import PendingReply

__all__ = ["PendingReply", "check_prompt", "check_request"]
