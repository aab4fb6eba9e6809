"""Trying models, each in a process of its own, so that a crash, a hang or running out of memory costs one
row of the result and nothing else."""

from __future__ import annotations

from opgraph.survey.runner import Limits, run
from opgraph.survey.trial import Trial, load_trials, save_trial

__all__ = ["Limits", "Trial", "load_trials", "run", "save_trial"]
