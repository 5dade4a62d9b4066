"""Pictures (extra ``plot``)."""
