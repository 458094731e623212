"""Measure how well a model predicts texts, and how far it is from another."""

from edgeinfer.evaluating.choice import Choice, choice
from edgeinfer.evaluating.divergence import Divergence, divergence
from edgeinfer.evaluating.importance import importance
from edgeinfer.evaluating.measured import Measured
from edgeinfer.evaluating.perplexity import Perplexity, perplexity
from edgeinfer.evaluating.saved_logits import SavedLogits
from edgeinfer.evaluating.tasks import Task, parse_tasks

__all__ = [
    "Choice",
    "Divergence",
    "Measured",
    "Perplexity",
    "SavedLogits",
    "Task",
    "choice",
    "divergence",
    "importance",
    "parse_tasks",
    "perplexity",
]
