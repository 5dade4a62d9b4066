"""Results of queries: beliefs by node, and the jointly most probable values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partialmethod
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj
from scipy.special import softmax

from kernelbayes.arrays import as_doubles, like
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.graphs.evidence import Observed, check_node
from kernelbayes.graphs.propagate import Propagation
from kernelbayes.graphs.relation import TINY, Domain
from kernelbayes.graphs.structure import Edge, Node
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.points import concatenate, take
from kernelbayes.tables import HtmlTable, Table
from kernelbayes.types import Array, Floats, Ints, Names, Points, PointsLike


@dataclass(frozen=True, eq=False)
class Message:
    """A message: a function on the sample points of the receiving node.

    ``values`` are (q,), or (m, q) for m cases, with a maximum of 1.
    """

    points: Points
    values: Array


class GraphBeliefs(HtmlTable, Mapping[Node, Embedding | Batch]):
    """Beliefs by node: an :class:`Embedding` each, or a :class:`Batch` for a batch of evidence."""

    def __init__(self, variables: Sequence[Node], passed: Propagation, single: bool) -> None:
        self._variables = tuple(variables)
        self._passed = passed
        self._single = single

    converged = property(lambda self: self._passed.converged, doc="Whether messages settled.")
    iterations = property(lambda self: len(self._passed.deltas), doc="Two on a tree.")
    deltas = property(lambda self: np.array(self._passed.deltas), doc="Largest changes (i,).")

    def __iter__(self) -> Iterator[Node]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __contains__(self, node: object) -> bool:
        return node in set(self._variables)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return f"GraphBeliefs({len(self)} nodes, {state} after {self.iterations} iterations)"

    def __getitem__(self, node: Node) -> Embedding | Batch:
        """Belief of one node."""
        if node not in self._passed.learned.graph.position:
            raise KeyError(node)
        domain = self._passed.learned.domain_of(node)
        seen = self._passed.observed.get(node)
        if seen is not None and seen.embedding is not None:
            return seen.embedding
        if seen is not None:
            return self._with_values(node, domain, seen)
        weights = self._weights([node])[:, 0]
        return self._embedding(domain.points, weights, domain.kernel, domain.names)

    def ask(self, question: str, *asked: Any, **options: Any) -> dict[Node, Any]:
        """Call a method of every belief: ``ask("interval", 0.9)``. A mapping from nodes."""
        return {node: getattr(self[node], question)(*asked, **options) for node in self}

    def mean(self) -> dict[Node, Array]:
        """Mean of every belief; all nodes must be numbers, as for ``std``, ``var``, ``median``."""
        return self.ask("mean")

    std = partialmethod(ask, "std")
    var = partialmethod(ask, "var")
    median = partialmethod(ask, "median")

    def log_density(self, at: Mapping[Node, PointsLike]) -> dict[Node, Array]:
        """Log density of the beliefs of some nodes, each at its own points (k, d)."""
        return {node: self[node].log_density(X) for node, X in at.items()}

    def summary(self, level: float = 0.9) -> Table:
        """Summaries of all beliefs in one table, with a column for the node."""
        table = Table()
        for node in self:
            rows = self[node].summary(level)
            if len({row["variable"] for row in rows}) == 1:  # its name is the node's
                rows = Table({k: v for k, v in row.items() if k != "variable"} for row in rows)
            table += [{"node": node, **row} for row in rows]
        return table

    def to_frame(self, level: float = 0.9) -> Any:
        """Pandas frame of :meth:`summary`."""
        return self.summary(level).to_frame()

    def stacked(self, nodes: Sequence[Node]) -> Batch:
        """Beliefs of nodes that share a sample (templates) as one Batch, for one case of evidence.

        Its methods then apply to all of them at once: ``stacked(pixels).mean()``.
        """
        graph = self._passed.learned.graph
        for node in nodes:
            check_node(self._passed.learned, node, "stacked")
        if len({int(graph.domain[graph.position[node]]) for node in nodes}) != 1:
            raise ValueError("only nodes that share a sample, by their templates, can be stacked")
        if self._passed.cases != 1:
            raise ValueError("beliefs of several cases cannot be stacked; ask for one at a time")
        if any(node in self._passed.observed for node in nodes):
            raise ValueError("observed nodes cannot be stacked; leave them out")
        domain = self._passed.learned.domain_of(nodes[0])
        found = self._embedding(
            domain.points, self._weights(nodes)[0], domain.kernel, domain.names, batch=True
        )
        assert isinstance(found, Batch)
        return found

    def joint(self, first: Node, second: Node) -> Embedding | Batch:
        """Belief of two neighbours that are not observed, over the pairs of their edge.

        An embedding of a joint variable whose parts have the names of the nodes.
        """
        passed, graph = self._passed, self._passed.learned.graph
        ends = next((k for k, e in enumerate(graph.edges) if set(e) == {first, second}), None)
        if ends is None:
            raise ValueError(f"the graph has no edge between {first!r} and {second!r}")
        if any(node in passed.observed for node in (first, second)):
            raise ValueError("joint needs two nodes that are not observed")
        relation = passed.learned.relations[graph.template[ends]]
        logs, points, kernels = 0.0, {}, {}
        for side, rows in enumerate((relation.i, relation.j)):
            node, domain = graph.edges[ends][side], relation.domains[side]
            at = graph.position[node]
            number = int(passed.domain[at])
            incoming = passed.totals(number, np.array([passed.place[at]]))[0]
            incoming = incoming - passed.logs[number][passed.slot[2 * ends + side]]
            logs = logs + incoming[:, rows]
            points[str(node)], kernels[str(node)] = take(domain.points, rows), domain.kernel
        weights = softmax(logs, axis=-1)
        parts = {str(node): points[str(node)] for node in (first, second)}
        return self._embedding(parts, weights, Parts({n: kernels[n] for n in parts}), tuple(parts))

    @cached_property
    def messages(self) -> Mapping[Edge, Message]:
        """Messages by directed edge (source, target), except to observed nodes."""
        passed, nodes = self._passed, self._passed.learned.graph.nodes
        found = {}
        for d in np.flatnonzero(passed.slot >= 0).tolist():
            number = int(passed.domain[passed.target[d]])
            values = np.exp(passed.logs[number][passed.slot[d]])
            message = Message(
                passed.learned.domains[number].points, values[0] if self._single else values
            )
            found[nodes[passed.source[d]], nodes[passed.target[d]]] = message
        return found

    def _weights(self, nodes: Sequence[Node]) -> Floats:
        """Weights (cases, k, q) of nodes of one domain."""
        passed = self._passed
        at = np.array([passed.learned.graph.position[node] for node in nodes])
        number = int(passed.domain[at[0]])
        logs = passed.totals(number, passed.place[at])
        linear, domain = passed.learned.linear, passed.learned.domains[number]
        if linear is not None and self._given is not None and linear.adds_to(nodes[0], domain):
            logs = linear.pooled(nodes[0], domain, logs[0], *self._given)[None]
        logs = logs + np.log(domain.shares)
        return np.moveaxis(softmax(logs, axis=-1), 0, 1)

    @cached_property
    def _given(self) -> tuple[Floats, Floats] | None:
        """Means and variances of a learned tree's Gaussian, unless some evidence is uncertain."""
        passed, linear = self._passed, self._passed.learned.linear
        uncertain = any(one.embedding is not None for one in passed.observed.values())
        if linear is None or uncertain or passed.likelihoods:
            return None
        return linear.given(linear.rows(passed.learned, passed.observed, passed.cases))[:2]

    def _embedding(
        self, points: Points, weights: Floats, kernel: Kernel, names: Names, batch: bool = False
    ) -> Embedding | Batch:
        """Embedding of one case, or Batch of several (or of several nodes)."""
        found = like(weights, kernel.diag(take(points, slice(0, 1))))
        if self._single and not batch:
            return Embedding(points, found[0, :], kernel, names)
        return Batch(points, found, kernel, names)

    def _with_values(self, node: Node, domain: Domain, seen: Observed) -> Embedding | Batch:
        """Belief of a node observed in some cases: there it is a point mass at the value."""
        points, cases = seen.points, np.broadcast_to(seen.cases, self._passed.cases)
        weights = np.zeros((len(cases), int(seen.cases.sum())))
        weights[np.flatnonzero(cases), np.arange(cases.sum()) % weights.shape[1]] = 1.0
        if not cases.all():
            others = np.where(cases[:, None], 0.0, self._weights([node])[:, 0])
            points = concatenate(domain.points, points)
            weights = np.concatenate([others, weights], axis=1)
        return self._embedding(points, weights, domain.kernel, domain.names)


def most_probable(passed: Propagation, single: bool) -> dict[Node, Any]:
    """Jointly most probable values of all unobserved nodes, for each case of evidence.

    The potential of a node is its density (proportions for categories, the kernel mean where there
    is no density) times its evidence; that of an edge is p(s, t) / (p(s) p(t)), above the floor.
    """
    if not passed.is_forest or any(not one.always for one in passed.observed.values()):
        raise ValueError(
            "map_query needs a graph without cycles among unobserved nodes, and the same nodes "
            "observed in all cases; use mode() of single beliefs instead"
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
    """Log density (q,) of a node at its sample points, up to a constant."""
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
