"""Steady state of a deployment under its load.

===================  ==========================================================================================
``steady``           steady states: rate, time per token, mixed passes, static batches, finite runs, users
``queueing``         waiting time before prefill, and variation of the batch
``disaggregated``    prefill on separate processors (disaggregated prefill)
``full_batches``     replicas with their memory, and their steady states with full batches
``operating_point``  the batch that a load leads to, with all figures; ``batch_search`` searches for it
``served_points``    records of the results: figures, limits, prices and energy
===================  ==========================================================================================
"""
