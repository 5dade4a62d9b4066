"""Read the user's graph: edges, templates, and which nodes share a sample."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from kernelbayes.types import Bools, Floats, Ints

Node = Hashable
Edge = tuple[Node, Node]
# Edges, a networkx graph (or anything with nodes and edges), or "tree" for a learned one.
GraphLike = Any
Templates = Mapping[Hashable, Sequence[Edge]]


@dataclass(frozen=True)
class Graph:
    """Nodes and edges; ``template`` (one per edge) numbers the relation in ``names`` it follows.

    Without templates every edge is a relation of its own.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    template: tuple[int, ...]
    names: tuple[Hashable, ...]

    @cached_property
    def position(self) -> dict[Node, int]:
        """Index of each node in ``nodes``."""
        return {node: at for at, node in enumerate(self.nodes)}

    @cached_property
    def ends(self) -> Ints:
        """Positions (E, 2) of the first and the second node of each edge."""
        found = [(self.position[u], self.position[v]) for u, v in self.edges]
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def domain(self) -> Ints:
        """Index of each node's sample; nodes at one end of a template share it."""
        template, n = np.array(self.template, dtype=np.int64), len(self.nodes)
        # nodes and the two ends of each relation are joined by the edges
        rows = np.concatenate([self.ends[:, 0], self.ends[:, 1]])
        columns = n + np.concatenate([2 * template, 2 * template + 1])
        size = n + 2 * len(self.names)
        joined = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
        labels = connected_components(joined, directed=False)[1][:n]
        return np.unique(labels, return_inverse=True)[1].reshape(-1)


def read_graph(graph: GraphLike, templates: Templates | None, isolated: Iterable[Node]) -> Graph:
    """Graph from edges or networkx; ``isolated`` are further nodes in the data."""
    groups = {} if templates is None else {name: list(some) for name, some in templates.items()}
    nodes: list[Node] = []
    if graph is None:
        edges = [edge for group in groups.values() for edge in group]
    elif hasattr(graph, "edges") and hasattr(graph, "nodes"):
        if getattr(graph, "is_directed", lambda: False)():
            raise ValueError(
                "the graph is directed, but belief propagation needs an undirected one; connect "
                "the parents of each node (moralise) and pass graph.to_undirected()"
            )
        nodes, edges = list(graph.nodes), list(graph.edges)
    elif isinstance(graph, str):
        raise ValueError(f'graph must be edges, a networkx graph or "tree", got {graph!r}')
    else:
        edges = list(graph)
    edges = [_edge(edge) for edge in edges]
    owner = {frozenset(edge): edge for edge in edges}
    if len(owner) < len(edges):
        raise ValueError("an edge is given twice; each pair of nodes has one edge")
    names: list[Hashable] = []
    template: dict[frozenset[Node], int] = {}
    for name, group in groups.items():
        for edge in map(_edge, group):
            key = frozenset(edge)
            if key not in owner:
                raise ValueError(f"{edge!r} of template {name!r} is not an edge of the graph")
            if key in template:
                raise ValueError(f"the edge {edge!r} is in two templates; it can be in only one")
            owner[key] = edge  # a template says which end is the first
            template[key] = len(names)
        names.append(name)
    for key, edge in owner.items():
        if key not in template:
            template[key] = len(names)
            names.append(edge)
    ends = (node for edge in owner.values() for node in edge)
    every = tuple(dict.fromkeys([*nodes, *ends, *isolated]))
    if not every:
        raise ValueError("the graph is empty; give edges, for example [('a', 'b'), ('b', 'c')]")
    return Graph(every, tuple(owner.values()), tuple(template[key] for key in owner), tuple(names))


def _edge(edge: Edge) -> Edge:
    if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) < 2:
        raise TypeError(f"an edge is a pair of nodes, got {edge!r}")
    if edge[0] == edge[1]:
        raise ValueError(f"an edge joins two nodes, got {edge!r}")
    return edge[0], edge[1]


def chow_liu(features: Mapping[Node, Floats], present: Mapping[Node, Bools]) -> list[Edge]:
    r"""Edges of the spanning tree of largest dependence, by normalised HSIC.

    The dependence of two nodes is :math:`|C_{st}|^2 / (|C_{ss}| |C_{tt}|)`, with covariances of
    their features (n, r) over the rows in which both are present. Chow and Liu (1968) used mutual
    informations, which need densities.
    """
    nodes = list(features)
    weights = np.zeros((len(nodes), len(nodes)))
    for a, s in enumerate(nodes):
        for b, t in enumerate(nodes[:a]):
            both = present[s] & present[t]
            if both.sum() < 2:
                raise ValueError(
                    f"{s!r} and {t!r} have fewer than two rows in common; give the edges yourself"
                )
            F, H = (f[both] - f[both].mean(axis=0) for f in (features[s], features[t]))
            spread = np.linalg.norm(F.T @ F) * np.linalg.norm(H.T @ H)
            dependence = np.linalg.norm(F.T @ H) ** 2 / spread if spread > 0 else 0.0
            weights[a, b] = 2.0 - dependence  # at least one, as zeros are no edges there
    tree = minimum_spanning_tree(weights).tocoo()
    return [(nodes[b], nodes[a]) for a, b in zip(tree.row, tree.col, strict=True)]
