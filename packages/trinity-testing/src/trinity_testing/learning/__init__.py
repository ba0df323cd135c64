"""Does an algorithm learn? A tiny model, the real trainer, the real engine, a few CPU steps."""

from trinity_testing.learning.curve import LearningCurve, curve_table, learning_curve

__all__ = ["LearningCurve", "curve_table", "learning_curve"]
