"""Samples larger than memory: mergeable statistics of a fit, and sources of pairs.

``statistics`` has the mergeable sums over pairs that a fit with finite features needs;
``sources`` reads batches, Arrow streams, files and Dask collections and reduces over them;
``rules.merging`` has ``partial_fit``, ``merge`` and the fit from a source, for all estimators.
"""
