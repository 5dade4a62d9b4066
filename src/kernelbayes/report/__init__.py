"""The report: one self-contained page about a result."""

from kernelbayes.report.page import report

__all__ = ["report"]
