"""Monitors, one right, the others with one mistake each."""

import json

from trinity.common.ports import Monitor


class RightMonitor(Monitor):
    """Is right: appends a line to the file of its role."""

    mode = "a"

    def __init__(self, directory, role):
        directory.mkdir(parents=True, exist_ok=True)
        self.file = (directory / self.name(role)).open(self.mode)

    def name(self, role):
        return f"{role}.jsonl"

    def log(self, metrics, *, step):
        self.file.write(json.dumps({"step": step, **metrics}) + "\n")

    def close(self):
        self.file.close()


class ChokesOnNaN(RightMonitor):
    """Writes strict JSON, which has no NaN."""

    def log(self, metrics, *, step):
        self.file.write(json.dumps({"step": step, **metrics}, allow_nan=False) + "\n")


class AddsTheStep(RightMonitor):
    """Puts the step into the metrics it is given."""

    def log(self, metrics, *, step):
        metrics["step"] = step
        self.file.write(json.dumps(metrics) + "\n")


class OnlyGoesOn(RightMonitor):
    """Refuses a step that is not after the last."""

    last = 0

    def log(self, metrics, *, step):
        if step <= self.last:
            raise ValueError(f"step {step} comes after {self.last}")
        self.last = step
        super().log(metrics, step=step)


class ClosesOnce(RightMonitor):
    """Fails when it is closed again."""

    def close(self):
        self.file.flush()
        self.file.close()
        del self.file


class WritesOver(RightMonitor):
    """Begins its file anew each time it is opened."""

    mode = "w"


class SharesAFile(RightMonitor):
    """Has one file for all roles, into which each writes from where it began."""

    def __init__(self, directory, role):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "all.jsonl"
        path.touch()
        self.file = path.open("r+")
        self.file.seek(0, 2)


class HasNoBase:
    """Is no Monitor, but has its methods."""

    def __init__(self, *, directory, role):
        self.own = RightMonitor(directory=directory, role=role)
        self.log, self.close = self.own.log, self.own.close

    def log(self, metrics, *, step):
        pass
