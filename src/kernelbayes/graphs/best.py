"""The jointly most probable values of a tree's nodes: max-product, over the points of each node."""

from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_doubles
from kernelbayes.embedding import Embedding
from kernelbayes.graphs.propagate import Propagation
from kernelbayes.graphs.relation import TINY, Domain
from kernelbayes.graphs.structure import Node
from kernelbayes.points import take
from kernelbayes.types import Floats, Ints


def most_probable(passed: Propagation, single: bool) -> dict[Node, Any]:
    """Values by node, of all that are not observed, in each case of evidence.

    A node's potential is its density (shares for categories, the kernel mean of what has no
    density) times what evidence says of it, an edge's p(s, t) / (p(s) p(t)), above the floor.
    """
    if not passed.is_forest or any(not one.always for one in passed.observed.values()):
        raise ValueError(
            "the jointly most probable values are found on graphs without cycles (among what is "
            "not observed), with the same nodes observed in all cases; use mode() of the beliefs"
        )
    graph, domains = passed.learned.graph, passed.learned.domains
    order, above = passed.from_roots()
    order = [node for node in order if not passed.fixed[node]]
    edges = {(passed.source[d], passed.target[d]): int(d) for d in passed.live}
    heard: dict[int, Floats] = {}
    for node in order:  # nothing but evidence was sent yet
        number = int(passed.domain[node])
        own = passed.totals(number, np.array([passed.place[node]]))[0]
        heard[node] = own + _log_density(domains[number])
    choices: dict[int, Ints] = {}
    for node in reversed([node for node in order if node in above]):  # leaves first
        ratios = _log_ratios(passed, edges[node, above[node]])
        found = [row[:, None] + ratios for row in heard[node]]
        choices[node] = np.array([one.argmax(axis=0) for one in found])
        heard[above[node]] = heard[above[node]] + [one.max(axis=0) for one in found]
    best: dict[int, Ints] = {}
    for node in order:
        if node in above:
            best[node] = choices[node][np.arange(passed.cases), best[above[node]]]
        else:
            best[node] = heard[node].argmax(axis=1)
    values = {graph.nodes[k]: take(domains[passed.domain[k]].points, at) for k, at in best.items()}
    return {node: found[0] for node, found in values.items()} if single else values


def _log_density(domain: Domain) -> Floats:
    """Log (q,) of what is proportional to the density of a node's sample at its points."""
    if domain.kernel.is_categorical:
        return np.log(domain.shares)
    if is_array_api_obj(domain.points) and domain.points.ndim == 2 and not domain.kernel.is_curved:
        sample = Embedding(domain.points, domain.shares, domain.kernel)
        return as_doubles(sample.log_density(domain.points))
    return np.log(np.maximum(domain.F @ (domain.shares @ domain.F), TINY))


def _log_ratios(passed: Propagation, edge: int) -> Floats:
    """Log of p(s, t) / (p(s) p(t)) (q, q') at the points of a directed edge's two ends."""
    relation, side = divmod(int(passed.kind[edge]), 2)
    learned = passed.learned.relations[relation]
    operator = learned.operators[side]
    ratios = operator.evidence(learned.domains[1 - side].F)
    logs, _ = operator.logs(ratios.reshape(1, -1), 1.0, passed.floor)
    return logs.reshape(ratios.shape)
