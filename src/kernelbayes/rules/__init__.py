"""The rules of probability on embeddings: sum, chain and Bayes' rule, and density ratios."""

from kernelbayes.rules.bayes import bayes_rule, choose_ridge, turn, turned
from kernelbayes.rules.conditional import Conditional, Ridge, Variable
from kernelbayes.rules.estimator import ConditionalEmbedding, variable
from kernelbayes.rules.prior import (
    BayesMethod,
    PriorLike,
    divided,
    prior_element,
    prior_points,
    prior_under,
    prior_weights,
    reembed,
    usable_weights,
)
from kernelbayes.rules.ratio import DensityRatio, density_ratio
from kernelbayes.rules.sum import Form, Joint, chain_rule, sum_rule

__all__ = [
    "BayesMethod",
    "Conditional",
    "ConditionalEmbedding",
    "DensityRatio",
    "Form",
    "Joint",
    "PriorLike",
    "Ridge",
    "Variable",
    "bayes_rule",
    "chain_rule",
    "choose_ridge",
    "density_ratio",
    "divided",
    "prior_element",
    "prior_points",
    "prior_under",
    "prior_weights",
    "reembed",
    "sum_rule",
    "turn",
    "turned",
    "usable_weights",
    "variable",
]
