"""The state of a deployment under its load.

===================  ==========================================================================================
``steady``           steady states: rate, time per token, mixed passes, static batches, finite runs, users
``queueing``         the wait before prefill, and how far the batch varies
``apart``            prefill in processors of its own
``full_batches``     replicas with their memory, and their states with full batches
``operating_point``  the batch that a load leads to, and all figures; ``batch_search`` the search for it
``known_states``     states that were found before; ``all_replicas`` what follows for several replicas
``served_points``    the records of what is found; ``served_energy`` the energy of a token
===================  ==========================================================================================
"""
