"""The machine view: figures of the machine and the benefit of better ones."""
