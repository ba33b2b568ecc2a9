"""The whole run: phases of a training, failures, checkpoints, money and energy, as formulas of columns of steps."""
