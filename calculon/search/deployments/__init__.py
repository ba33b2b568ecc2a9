"""The search for deployments: how a model is served best, over counts, splits, types of numbers and schedulers.

=========================  =======================================================================================
``deployment_words``       names of fields and figures that a question may use, and their values
``deployment_space``       the deployments of a question, numbered
``deployment_rows``        their figures, in parts of bounded size
``serving_search``         the search itself, exact; ``deployments_found`` what it returns
``pool_join``              prefill and decode in pools of their own: two frontiers become one
=========================  =======================================================================================
"""
