"""State-space models learned from examples: filter, smooth, forecast."""

from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.beliefs import Beliefs, FilterState, Forecast, StepInfo
from kernelbayes.filters.choose import tuning  # noqa: F401 (registers what tune can do)
from kernelbayes.filters.montecarlo import KernelMonteCarloFilter

__all__ = ["Beliefs", "FilterState", "Forecast", "KernelBayesFilter", "KernelMonteCarloFilter"]
__all__ += ["StepInfo"]
