"""Samples beyond memory: statistics of a fit as a value, and where pairs are read from.

``statistics`` has the sums over pairs that a fit with finite features needs, which merge;
``sources`` reads batches, Arrow streams, files and Dask collections and reduces over them;
``merging`` has ``partial_fit``, ``merge`` and the fit from a source, the same for all estimators.
"""
