"""Measure how well a model predicts texts, and how far it is from another."""

from edgeinfer.evaluating.divergence import Divergence, divergence
from edgeinfer.evaluating.importance import importance
from edgeinfer.evaluating.measured import Measured
from edgeinfer.evaluating.perplexity import Perplexity, perplexity

__all__ = ["Divergence", "Measured", "Perplexity", "divergence", "importance", "perplexity"]
