"""The inside of one execution: its layers and operators, groups of ranks, pipeline stages, and how sure its time is."""
