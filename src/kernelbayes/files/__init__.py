"""Files: anything the library returns, saved and loaded without pickle."""

from kernelbayes.files.archive import load, save

__all__ = ["load", "save"]
