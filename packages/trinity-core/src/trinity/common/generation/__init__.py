"""What every rollout engine needs beside its model: refusing requests, and answers given up."""

from trinity.common.generation.requests import PendingReply, check_prompt, check_request

__all__ = ["PendingReply", "check_prompt", "check_request"]
