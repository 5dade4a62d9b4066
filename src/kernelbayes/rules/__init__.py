"""The rules of probability on embeddings: sum, chain and Bayes' rule, and density ratios."""

from kernelbayes.rules.bayes import (
    BayesMethod,
    Form,
    Joint,
    as_prior,
    bayes_rule,
    chain_rule,
    choose_ridge,
    prior_points,
    prior_weights,
    sum_rule,
    turn,
    usable_weights,
)
from kernelbayes.rules.conditional import ConditionalEmbedding, default_kernel
from kernelbayes.rules.ratio import DensityRatio, density_ratio

__all__ = [
    "BayesMethod",
    "ConditionalEmbedding",
    "DensityRatio",
    "Form",
    "Joint",
    "as_prior",
    "bayes_rule",
    "chain_rule",
    "choose_ridge",
    "default_kernel",
    "density_ratio",
    "prior_points",
    "prior_weights",
    "sum_rule",
    "turn",
    "usable_weights",
]
