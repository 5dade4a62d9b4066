"""Kernel belief propagation on graphs of numbers, categories and structured variables."""

from kernelbayes.graphs.beliefs import GraphBeliefs, Message
from kernelbayes.graphs.model import KernelBeliefPropagation

__all__ = ["GraphBeliefs", "KernelBeliefPropagation", "Message"]
