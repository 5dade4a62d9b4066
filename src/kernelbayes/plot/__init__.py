"""Pictures. They need matplotlib, the extra ``plot``, imported only when drawing.

Every function draws into matplotlib axes, its own or those you pass, and returns them; saving and
showing is yours.
"""

from kernelbayes.plot.tests import plot_witness

__all__ = ["plot_witness"]
