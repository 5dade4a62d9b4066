"""What the update sees of the observations: windows of them, or a regression on those."""
