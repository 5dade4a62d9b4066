"""Reports: one self-contained HTML page about a result."""

from kernelbayes.report.page import report

__all__ = ["report"]
