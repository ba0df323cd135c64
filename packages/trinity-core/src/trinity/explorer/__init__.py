"""Explorer (rollout): runs workflows, tasks in and experiences out."""
