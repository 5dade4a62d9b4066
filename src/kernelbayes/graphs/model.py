"""Kernel belief propagation: inference in graphs of any variables, learned from pairs.

>>> import numpy as np
>>> from kernelbayes import KernelBeliefPropagation
>>> rng = np.random.default_rng(0)
>>> a = rng.normal(size=400)
>>> b = a + 0.5 * rng.normal(size=400)
>>> c = b + 0.5 * rng.normal(size=400)
>>> model = KernelBeliefPropagation([("a", "b"), ("b", "c")]).fit({"a": a, "b": b, "c": c})
>>> beliefs = model.query(evidence={"c": 1.0})
>>> sorted(beliefs), beliefs.converged
(['a', 'b'], True)
>>> bool(abs(beliefs["a"].mean()[0] - 1.0 / 1.5) < 0.2)  # E[a | c] = c / 1.5
True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_generator, quiet, warn
from kernelbayes.graphs.beliefs import GraphBeliefs, most_probable
from kernelbayes.graphs.choose import choose_scales, choose_share, rescaled, scored_iterations
from kernelbayes.graphs.evidence import VirtualEvidence, check_node, read_evidence, read_likelihoods
from kernelbayes.graphs.propagate import SCHEDULES, Propagation, Schedule
from kernelbayes.graphs.reading import Kernels, Learned, learn
from kernelbayes.graphs.relation import Floor
from kernelbayes.graphs.structure import GraphLike, Node, Templates
from kernelbayes.points import integer, option, positive, share
from kernelbayes.rules.conditional import Ridge, describe_shares
from kernelbayes.tables import Documented, Table
from kernelbayes.types import PointsLike, Rng


@dataclass(eq=False, repr=False)
class KernelBeliefPropagation(Documented, BaseEstimator):  # type: ignore[misc]
    """Beliefs about the nodes of a graph, from evidence about some of them.

    Parameters
    ----------
    graph : iterable of edges, networkx graph, "tree" or None
        Undirected. "tree" learns the spanning tree of largest dependence (HSIC) from the data; a
        Gaussian of all columns adds to its beliefs about numbers if held-out cells are clearly
        better with it. None takes the edges of ``templates``.
    kernels : Kernel or mapping from nodes, edges or templates to kernels, optional
        A kernel of an edge (or a pair, one per end) replaces those of its nodes. The default is a
        Gaussian with the median bandwidth for numbers and Delta for anything else.
    ridge : float or "loo"
        Ridge of all regressions; "loo" chooses one for each by leave-one-out error.
    rank : int, optional
        Nystrom features of this rank for every node.
    scales : {"held-out", "median"}
        How to choose kernels that were not given. "held-out" tries multiples of the median
        distance, and the Laplace kernel, for each node and then for each of its edges, and uses
        those with a clearly better log score on held-out pairs.
    templates : mapping from names to edges, optional
        The edges of a template share their pairs, and the nodes at one end of a template share
        their sample: all horizontal neighbours in an image, all steps of a chain.
    schedule : {"auto", "tree", "synchronous", "residual"}
        "tree": two passes, exact on graphs without cycles. "synchronous": all messages at once.
        "residual": the message that changes most first. "auto" is "tree" where it can be,
        "synchronous" elsewhere.
    damping : float in [0, 1)
        Share of the old log message that is kept on graphs with cycles.
    floor : "pairs" or float in (0, 1)
        Lower bound of messages between numbers, which must stay positive. "pairs": what one more
        pair, with any values of the two nodes, could add. A number: a fraction of the maximum.
    max_iterations : int
    tolerance : float
        Iterations stop when no message (scaled to a maximum of 1) changes by more than this.
    rng : int, Generator or None
        For landmarks.

    Attributes
    ----------
    graph_ : Graph
        Nodes and edges in use.
    tuning_ : Table
        The last search: kernels of nodes and edges, or numbers of iterations.
    share_ : float
        Share of the Gaussian of all columns in beliefs, from 0 to 3/4.
    ridges_ : mapping
        From edges (or templates) to the ridges of the regressions on their first and second node.
    """

    graph: GraphLike = None
    kernels: Kernels = None
    ridge: Ridge = "loo"
    rank: int | None = None
    scales: Literal["held-out", "median"] = "held-out"
    templates: Templates | None = None
    schedule: Schedule = "auto"
    damping: float = 0.2
    floor: Floor = "pairs"
    max_iterations: int = 100
    tolerance: float = 1e-5
    rng: Rng = None

    def fit(self, data: Any) -> Self:
        """Learn every edge from data.

        Parameters
        ----------
        data : frame, or mapping
            A frame whose columns are the nodes, or a mapping from nodes to points: rows are joint
            observations, NaN or None marks missing values, and an edge uses the rows where both of
            its nodes are observed. A node that is a tuple of names has several columns. Or a
            mapping from edges (or templates) to (points, points), which may be separate samples.
        """
        rank = None if self.rank is None else integer(self.rank, "rank")
        if self.graph is None and self.templates is None:
            raise ValueError('graph must be a list of edges, a networkx graph or "tree"')
        rng: Rng = None if rank is None else as_generator(self.rng)
        self.learned_ = learn(self.graph, self.templates, data, self.kernels, self.ridge, rank, rng)
        self.tuning_ = Table()
        if option(self.scales, "scales", ("held-out", "median")) == "held-out":
            found = choose_scales(self.learned_, self.kernels, self._floor())
            self.learned_, self.tuning_ = found
            if isinstance(self.graph, str):  # a learned tree
                self.learned_ = choose_share(self.learned_, data, self.ridge)
        self.share_ = self.learned_.linear.share if self.learned_.linear else 0.0
        for relation in self.learned_.relations:
            _ = relation.operators
        self.iterations_: int | None = None
        return self

    def choose_stopping(
        self,
        truth: Mapping[Node, PointsLike],
        evidence: Mapping[Node, PointsLike] | PointsLike = None,
        virtual_evidence: Mapping[Node, VirtualEvidence] | None = None,
        scales: Sequence[float] = (1.0,),
    ) -> Self:
        """Choose iterations, and bandwidths, from cases with known answers, for graphs with cycles.

        Belief propagation on cycles counts evidence more than once, and may be best before it
        converges. The number of iterations, up to ``max_iterations``, minimises the mean kernel
        score of the beliefs, ``|phi(x) - mu|^2`` with the true value x. Later queries use
        ``iterations_`` and do not warn about convergence.

        Parameters
        ----------
        truth : mapping from nodes to their true values
            One value, or m values for m cases of evidence.
        evidence, virtual_evidence
            Evidence about other nodes; see :meth:`query`.
        scales : sequence of floats
            Multiples of the bandwidths of the nodes in ``truth`` to try as well, all scored with
            the present kernels.
        """
        own, most = self._fitted(), integer(self.max_iterations, "max_iterations")
        for node in truth:
            check_node(own, node, "truth")
        tolerance, self.tuning_ = positive(self.tolerance, "tolerance"), Table()
        tried = {positive(s, "scales"): rescaled(own, truth, positive(s, "scales")) for s in scales}
        for scale, learned in tried.items():
            passed, _ = self._propagation(evidence, virtual_evidence, learned)
            with quiet():  # stopping early is intended
                scores = scored_iterations(passed, truth, most, tolerance, own)
            self.tuning_ += [
                {"scale": scale, "iterations": k, "score": float(score)}
                for k, score in enumerate(scores, 1)
            ]
        best = self.tuning_.best
        self.learned_, self.iterations_ = tried[float(best["scale"])], int(best["iterations"])
        return self

    @property
    def graph_(self) -> Any:
        """Nodes and edges in use."""
        return self._fitted().graph

    @property
    def ridges_(self) -> dict[Any, tuple[float, float]]:
        """Ridges by edge or template."""
        learned = self._fitted()
        named = zip(learned.graph.names, learned.relations, strict=True)
        return {name: relation.ridges for name, relation in named}

    def query(
        self,
        variables: Sequence[Node] | None = None,
        evidence: Mapping[Node, PointsLike] | PointsLike = None,
        virtual_evidence: Mapping[Node, VirtualEvidence] | None = None,
    ) -> GraphBeliefs:
        """Beliefs about nodes, given evidence about others.

        Parameters
        ----------
        variables : node or list of nodes, optional
            Default: all nodes that are not observed.
        evidence : mapping or frame, optional
            A value for each observed node, or an Embedding for an uncertain value. An array of m
            values (or a Batch) gives m cases at once; NaN or None means that the node is not
            observed in that case. The belief of an observed node is its value.
        virtual_evidence : mapping, optional
            Likelihoods: a function from points (q, ...) to values (q,), a mapping from categories
            to values, or ``(conditional, value)``: the ConditionalEmbedding of a noisy child given
            the node, and the observed value of the child.

        Returns
        -------
        GraphBeliefs
            Mapping from nodes to an Embedding each (a Batch for m cases), with ``converged``,
            ``iterations``, ``deltas`` and ``messages``.
        """
        passed, single = self._propagation(evidence, virtual_evidence)
        graph = passed.learned.graph
        many = isinstance(variables, Sequence) and not isinstance(variables, str)
        if variables is None:
            fixed = {node for node, one in passed.observed.items() if one.always}
            variables = [node for node in graph.nodes if node not in fixed]
        elif not many or (isinstance(variables, tuple) and variables in graph.position):
            variables = [variables]
        for node in variables:
            check_node(passed.learned, node, "variables")
        chosen = self.iterations_ is not None
        most = self.iterations_ or integer(self.max_iterations, "max_iterations")
        passed.run(self.schedule, most, positive(self.tolerance, "tolerance"), chosen)
        found = describe_shares(passed.filled, "cases")
        if found:
            some = sorted({str(graph.nodes[passed.source[d]]) for d in passed.lost})[:5]
            warn(
                f"messages from {', '.join(some)} carry evidence outside the training pairs, or of "
                f"a value alone there, in {found[0]}: {found[1]} of it is replaced by the marginal"
            )
        return GraphBeliefs(variables, passed, single)

    def map_query(
        self,
        evidence: Mapping[Node, PointsLike] | PointsLike = None,
        virtual_evidence: Mapping[Node, VirtualEvidence] | None = None,
    ) -> dict[Node, Any]:
        """Jointly most probable values of all nodes that are not observed, on a tree.

        Each value is a point of its node's sample (an array of points for m cases of evidence). The
        mode of a belief, ``query(...)["a"].mode()``, is the marginally most probable value of one
        node. Evidence is as for :meth:`query`, without missing values.
        """
        return most_probable(*self._propagation(evidence, virtual_evidence))

    def _propagation(
        self, evidence: Any, virtual_evidence: Any, learned: Learned | None = None
    ) -> tuple[Propagation, bool]:
        """Messages before the first iteration, and whether there is a single case of evidence."""
        learned = learned or self._fitted()
        option(self.schedule, "schedule", SCHEDULES)
        damping, floor = share(self.damping, "damping", low=True), self._floor()
        observed = read_evidence(learned, evidence)
        likelihoods = read_likelihoods(learned, virtual_evidence)
        sizes = {node: len(one.cases) for node, one in observed.items()}
        sizes |= {(node, "virtual"): len(values) for node, values in likelihoods.items()}
        several = {node: size for node, size in sizes.items() if size != 1}
        if len(set(several.values())) > 1:
            raise ValueError(f"evidence has different numbers of cases: {several}")
        cases = max(sizes.values(), default=1)
        single = cases == 1 and all(one.single for one in observed.values())
        return Propagation(learned, observed, likelihoods, cases, floor, damping), single

    def _floor(self) -> Floor:
        return "pairs" if self.floor == "pairs" else share(self.floor, "floor")

    def _fitted(self) -> Learned:
        check_is_fitted(self, "learned_")
        learned: Learned = self.learned_
        return learned
