"""``kernelbayes demo``: a robot localises itself by its camera and wheels."""
