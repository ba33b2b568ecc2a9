"""Memory of a rank: weights, KV caches and cached prefixes.

==================  ===========================================================================================
``cache``           bytes of keys and values of a sequence
``rank_memory``     weights, activations and reserve, and the sequences that fit in the rest
``prefixes``        prefix caching: share of hits by tier of memory
``kept_prefixes``   prefixes that replicas keep, and the cost of their hits
==================  ===========================================================================================
"""
