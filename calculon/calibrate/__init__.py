"""Calibration: parts of a system file fitted to measurements of a machine (kernels, collectives, training steps)."""
