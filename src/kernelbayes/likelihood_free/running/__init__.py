"""Running a simulator: how it is called, in which order and process, and what is kept of it."""
