"""The search for deployments: how a model is served best, over counts, splits, types of numbers and schedulers.

====================  =========================================================================================
``deployment_words``  names of fields and figures that a question may use, and their values
``deployment_space``  the deployments of a question, numbered: replicas that do all, and pools that prefill apart
``deployment_rows``   their figures, in parts of bounded size; replicas that are alike are solved once
``unknown_figures``   figures that only some deployments have, and what they need
``serving_search``    the search itself, exact; ``deployments_found`` what it returns
====================  =========================================================================================

Pools apart are enumerated pair by pair. The time that a cache is under way depends on both splits, and the batch of
those that decode on how fast the others prefill, so that no frontier of one pool alone would be exact.
"""
