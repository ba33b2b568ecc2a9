"""The memory of a rank that serves.

==================  ===========================================================================================
``cache``           bytes of keys and values of a sequence
``rank_memory``     weights, activations, reserve, and what they leave
``sequence_room``   the sequences that fit beside
``prefixes``        laws of cached prefixes between requests, by tier of memory
``kept_prefixes``   the prefixes that replicas keep, and what their hits take
==================  ===========================================================================================
"""
