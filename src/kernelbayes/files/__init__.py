"""Save and load anything the library returns, without pickle."""

from kernelbayes.files.archive import load, save

__all__ = ["load", "save"]
