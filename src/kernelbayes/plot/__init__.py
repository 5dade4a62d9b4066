"""Plots. They need matplotlib (extra ``plot``), which is imported only when drawing.

Every function draws into matplotlib axes, new ones or those you pass, and returns them. Saving and
showing are up to you.
"""
