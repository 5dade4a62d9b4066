"""The rules of probability on embeddings: sum, chain and Bayes' rule, and density ratios."""

from kernelbayes.rules.bayes import bayes_rule, choose_ridge, turn
from kernelbayes.rules.conditional import Conditional, Ridge, Variable
from kernelbayes.rules.estimator import ConditionalEmbedding
from kernelbayes.rules.prior import BayesMethod, PriorLike, prior_element
from kernelbayes.rules.ratio import DensityRatio, density_ratio
from kernelbayes.rules.sum import Joint, chain_rule, sum_rule

__all__ = [
    "BayesMethod",
    "Conditional",
    "ConditionalEmbedding",
    "DensityRatio",
    "Joint",
    "PriorLike",
    "Ridge",
    "Variable",
    "bayes_rule",
    "chain_rule",
    "choose_ridge",
    "density_ratio",
    "prior_element",
    "sum_rule",
    "turn",
]
