"""Pass messages along the edges of a graph until they no longer change.

Messages are stored as logarithms on the points of the receiving domain, with a maximum of 0. All
edges of a relation in one direction are one batch: their updates are two matrix products.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from kernelbayes.arrays import row_blocks, threads_for, warn
from kernelbayes.graphs.evidence import Observed, message, read_all
from kernelbayes.graphs.reading import Learned
from kernelbayes.graphs.relation import TINY, Floor, Operator
from kernelbayes.graphs.structure import Node
from kernelbayes.rules.conditional import UNUSUAL
from kernelbayes.types import Bools, Floats, Ints

Schedule = Literal["auto", "tree", "synchronous", "residual"]
SCHEDULES: tuple[Schedule, ...] = ("auto", "tree", "synchronous", "residual")
# Numbers in one block of messages: 2 MB, so that a block stays in the cache of one core.
MESSAGE_ENTRIES = 2**18


@dataclass(eq=False)
class Propagation:
    """Messages of one query, in ``cases`` cases at once.

    Directed edge 2 e goes to the first node of edge e, 2 e + 1 to the second. A node observed in
    all cases receives no messages, and always sends the same one.
    """

    learned: Learned
    observed: dict[Node, Observed]
    likelihoods: dict[Node, Floats]
    cases: int
    floor: Floor = "pairs"
    damping: float = 0.0
    logs: dict[int, Floats] = field(init=False)
    lost: set[int] = field(default_factory=set, init=False)  # edges whose evidence is uninformative
    filled: Floats = field(init=False)  # largest share (cases,) of evidence left out
    deltas: list[float] = field(init=False)
    converged: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.filled, self.deltas, sizes = np.zeros(self.cases), [], self.derive()
        each = enumerate(zip(sizes, self.learned.domains, strict=True))
        self.logs = {n: np.zeros((size, self.cases, one.size)) for n, (size, one) in each}
        self._send_evidence()

    def derive(self) -> Ints:
        """Set what follows from the fields, and is not stored; return messages of each domain."""
        graph, self._known = self.learned.graph, dict[int, tuple[Bools, Floats]]()
        self.source, self.target = graph.ends[:, ::-1].reshape(-1), graph.ends.reshape(-1)
        self.kind = (2 * np.array(graph.template, dtype=np.int64)[:, None] + [0, 1]).reshape(-1)
        self.domain, self.place = graph.domain, _ranks(graph.domain)  # place: within the domain
        full = [graph.position[n] for n, one in self.observed.items() if one.always]
        self.fixed = np.isin(np.arange(len(graph.nodes)), full)
        kept = ~self.fixed[self.target]
        self.slot, into = np.full(len(self.target), -1), self.domain[self.target[kept]]
        self.slot[kept] = _ranks(into)
        self.live = np.flatnonzero(kept & ~self.fixed[self.source])
        return np.bincount(into, minlength=len(self.learned.domains))

    # --- sums over incoming messages --------------------------------------------------------------

    @cached_property
    def _incidence(self) -> dict[int, csr_array]:
        """For each domain, which messages (slots) arrive at which of its nodes."""
        found = {}
        for number in range(len(self.learned.domains)):
            into = np.flatnonzero((self.slot >= 0) & (self.domain[self.target] == number))
            rows, size = self.place[self.target[into]], int((self.domain == number).sum())
            shape = size, len(into)
            found[number] = csr_array((np.ones(len(into)), (rows, self.slot[into])), shape=shape)
        return found

    def totals(self, number: int, places: Ints | None = None) -> Floats:
        """Log of the product of all incoming messages (k, cases, q) at nodes of one domain."""
        logs, incidence = self.logs[number], self._incidence[number]
        rows = incidence if places is None else incidence[places]
        found = rows @ logs.reshape(len(logs), self.cases * logs.shape[2])
        found = np.asarray(found).reshape(rows.shape[0], *logs.shape[1:])
        if number in self._local:
            at, values = self._local[number]
            rows_of = at if places is None else at[places]
            own = np.flatnonzero(rows_of >= 0)
            found[own] += values[rows_of[own]]
        return found

    @cached_property
    def _local(self) -> dict[int, tuple[Ints, Floats]]:
        """For each domain with likelihoods: the row (-1: none) of each node, and their logs."""
        found, graph = {}, self.learned.graph
        position = {node: graph.position[node] for node in self.likelihoods}
        for number in {int(self.domain[at]) for at in position.values()}:
            own = [node for node, at in position.items() if self.domain[at] == number]
            rows = np.full(int((self.domain == number).sum()), -1)
            rows[self.place[[position[node] for node in own]]] = np.arange(len(own))
            shape = self.cases, self.learned.domains[number].size
            values = np.stack([np.broadcast_to(self.likelihoods[node], shape) for node in own])
            values = values / values.max(axis=-1, keepdims=True)
            found[number] = rows, np.log(np.maximum(values, TINY))
        return found

    # --- one update -------------------------------------------------------------------------------

    def grouped(self, edges: Ints) -> Iterator[Ints]:
        """Directed edges, those of one relation and direction together."""
        order = np.argsort(self.kind[edges], kind="stable")
        edges = edges[order]
        return iter(np.split(edges, 1 + np.flatnonzero(np.diff(self.kind[edges]))))

    def update(self, edges: Ints, totals: Floats | None = None) -> Floats:
        """Compute log messages (k, cases, q) of directed edges of one relation and direction."""
        relation, side = divmod(int(self.kind[edges[0]]), 2)
        operator = self.learned.relations[relation].operators[side]
        number = int(self.domain[self.source[edges[0]]])
        places, back = self.place[self.source[edges]], self.slot[edges ^ 1]
        q = self.learned.domains[int(self.domain[self.target[edges[0]]])].size
        found = np.empty((len(edges), self.cases, q))
        width, every = self.cases * max(self.learned.domains[number].size, q), np.arange(self.cases)
        for rows in row_blocks(len(edges), width, MESSAGE_ENTRIES):
            here = places[rows]
            f = self.totals(number, here) if totals is None else totals[here]
            f -= self.logs[number][back[rows]]  # a copy either way
            f -= f.max(axis=-1, keepdims=True)
            np.exp(f, out=f)
            f = f.reshape(-1, f.shape[-1])
            m, marginal = operator(f), f @ operator.shares
            logs = self._positive(operator, m, marginal, edges[rows], every)
            found[rows] = logs.reshape(-1, self.cases, q)
        for k in np.flatnonzero(np.isin(edges, list(self._known))) if self._known else ():
            cases, message = self._known[int(edges[k])]
            found[k, cases] = message
        return found

    def _positive(
        self, operator: Operator, m: Floats, marginal: Floats | float, edges: Ints, cases: Ints
    ) -> Floats:
        """Log messages (k, q) of edges in some cases; uninformative ones are recorded."""
        logs, empty = operator.logs(m, marginal, self.floor)
        if empty.any():
            self._unlike(edges, cases, empty.astype(float))
        return logs

    def _send_evidence(self) -> None:
        """Messages of observed nodes, which never change."""
        graph, seen, every = self.learned.graph, self.observed, np.arange(self.cases)
        at = {graph.position[node]: one for node, one in seen.items()}
        sending = np.flatnonzero(np.isin(self.source, list(at)) & ~self.fixed[self.target])
        for edges in self.grouped(sending) if len(sending) else ():
            relation, side = divmod(int(self.kind[edges[0]]), 2)
            learned = self.learned.relations[relation]
            operator, domain = learned.operators[side], learned.domains[1 - side]
            whole = edges[self.fixed[self.source[edges]]]
            if len(whole):
                number = int(self.domain[self.target[whole[0]]])
                for rows in row_blocks(len(whole), self.cases * len(operator.F), MESSAGE_ENTRIES):
                    some = whole[rows]
                    nodes = [at[s] for s in self.source[some].tolist()]
                    m, share = message(operator, *read_all(nodes, domain, self.cases))
                    self._unlike(some, every, share)
                    logs = self._positive(operator, m, 1.0, some, every)
                    self.logs[number][self.slot[some]] = logs.reshape(len(some), self.cases, -1)
            for edge in edges[~self.fixed[self.source[edges]]]:
                one = at[int(self.source[edge])]
                m, share = message(operator, *one.read(domain))
                own, cases = np.array([edge]), np.flatnonzero(one.cases)
                self._unlike(own, cases, share)
                logs = self._positive(operator, m, 1.0, own, cases)
                self._known[int(edge)] = one.cases, logs

    def _unlike(self, edges: Ints, cases: Ints, share: Floats) -> None:
        """Record edges and cases with evidence outside the sample, and the share filled in."""
        table = share.reshape(len(edges), -1)
        self.lost.update(edges[(table > UNUSUAL).any(axis=1)].tolist())
        self.filled[cases] = np.maximum(self.filled[cases], table.max(axis=0))

    def _set(self, edges: Ints, new: Floats) -> float:
        """Take new messages, damped; return the largest change."""
        logs, slots = self.logs[int(self.domain[self.target[edges[0]]])], self.slot[edges]
        delta = 0.0
        for rows in row_blocks(len(new), self.cases * new.shape[-1], MESSAGE_ENTRIES):
            block, old = new[rows], logs[slots[rows]]
            if self.damping:
                block *= 1.0 - self.damping
                block += self.damping * old
            logs[slots[rows]] = block
            delta = max(delta, change(block, old))
        return delta

    # --- schedules --------------------------------------------------------------------------------

    def run(self, schedule: Schedule, most: int, tolerance: float, chosen: bool = False) -> None:
        """Pass messages until they change by less than a tolerance, or ``most`` times.

        There is no warning if the number of iterations was ``chosen``.
        """
        tree = self.is_forest
        if schedule == "tree" and not tree:
            raise ValueError(
                'schedule="tree" needs a graph without cycles among unobserved nodes; '
                'use "auto", "synchronous" or "residual"'
            )
        work = 4.0 * MESSAGE_ENTRIES * max((d.F.shape[1] for d in self.learned.domains), default=1)
        with threads_for(work):
            if not len(self.live):
                return
            if schedule == "tree" or (schedule == "auto" and tree):
                self._two_passes()
                return
            if schedule == "residual":
                self._residual(most, tolerance)
            else:
                self._synchronous(most, tolerance)
        if self.converged or chosen:
            return
        last = ", ".join(f"{delta:.2g}" for delta in self.deltas[-5:])
        warn(
            f"belief propagation has not converged in {len(self.deltas)} iterations: the last "
            f"changes of messages were {last}, above the tolerance {tolerance:.2g}; try damping, "
            "narrower kernels or more max_iterations, or choose_stopping to stop early"
        )

    @cached_property
    def is_forest(self) -> bool:
        """Whether the unobserved nodes have no cycles."""
        trees = int(connected_components(self._links)[0])
        return len(self.live) // 2 == len(self.fixed) - trees

    @cached_property
    def _links(self) -> csr_array:
        size = len(self.fixed)
        pairs = self.source[self.live], self.target[self.live]
        return csr_array((np.ones(len(self.live)), pairs), shape=(size, size))

    def from_roots(self) -> tuple[list[int], dict[int, int]]:
        """Nodes in order from the roots, and the parent of each (roots have none)."""
        order: list[int] = []
        above: dict[int, int] = {}
        _, label = connected_components(self._links)
        for root in np.unique(label, return_index=True)[1]:
            found, parents = breadth_first_order(self._links, root)
            order += found.tolist()
            above |= {int(node): int(parents[node]) for node in found[1:]}
        return order, above

    def _two_passes(self) -> None:
        """To the root of each tree and back: each message once, after all it depends on."""
        depth = np.zeros(len(self.fixed), dtype=np.int64)
        order, above = self.from_roots()
        for node in order:
            depth[node] = depth[above[node]] + 1 if node in above else 0
        source, target = depth[self.source[self.live]], depth[self.target[self.live]]
        self.damping = 0.0
        for towards, levels in ((True, range(depth.max(), 0, -1)), (False, range(depth.max()))):
            deltas = [0.0]
            for level in levels:
                chosen = (source == level) & ((target < source) == towards)
                for edges in self.grouped(self.live[chosen]):
                    deltas.append(self._set(edges, self.update(edges)))
            self.deltas.append(max(deltas))

    def _synchronous(self, most: int, tolerance: float) -> None:
        groups = list(self.grouped(self.live))
        for _ in range(most):
            totals = {number: self.totals(number) for number in self.logs}
            new = [self.update(e, totals[int(self.domain[self.source[e[0]]])]) for e in groups]
            changes = [self._set(e, m) for e, m in zip(groups, new, strict=True)]
            self.deltas.append(max(changes))
            if self.after_iteration() or self.deltas[-1] <= tolerance:
                break
        self.converged = self.deltas[-1] <= tolerance

    def after_iteration(self) -> bool:
        """Return True to stop. Replaced by code that observes the iterations."""
        return False

    def _residual(self, most: int, tolerance: float) -> None:
        """Update the message that would change most, one at a time (Elidan et al. 2006)."""
        sources = self.source[self.live]
        leaving = {int(s): self.live[sources == s] for s in set(sources)}
        waiting: dict[int, Floats] = {}
        residual = np.zeros(len(self.target))

        def look(edges: Iterable[int]) -> None:
            for edge in edges:
                number = int(self.domain[self.target[edge]])
                waiting[edge] = self.update(np.array([edge]))
                residual[edge] = change(waiting[edge], self.logs[number][[self.slot[edge]]])

        look(self.live.tolist())
        for _ in range(most):
            self.deltas.append(float(residual.max()))
            for _ in range(len(self.live)):
                edge = int(np.argmax(residual))
                if residual[edge] <= tolerance:
                    break
                self._set(np.array([edge]), waiting[edge])
                residual[edge] *= self.damping
                if self.damping:
                    look([edge])
                after: Sequence[int] = leaving.get(int(self.target[edge]), np.array([])).tolist()
                look(other for other in after if other != edge ^ 1)
            if residual.max() <= tolerance:
                self.deltas.append(float(residual.max()))
                break
        self.converged = self.deltas[-1] <= tolerance


def _ranks(groups: Ints) -> Ints:
    """Position (n,) of each element within its group."""
    order, counts = np.argsort(groups, kind="stable"), np.bincount(groups)
    found = np.empty_like(order)
    found[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


def change(new: Floats, old: Floats) -> float:
    """Largest change of messages with a maximum of 1, given as logarithms."""
    return float(np.abs(np.exp(new) - np.exp(old)).max(initial=0.0))
