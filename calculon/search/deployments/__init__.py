"""Search for deployments: the best way to serve a model, over processor counts, splits, data types and schedulers.

=========================  ====================================================================================
``deployment_vocabulary``  names of fields and figures that a question may use, and their values
``deployment_space``       deployments of a question, numbered: with chunked prefill, or separate prefill pools
``pool_pairs``             pairs of prefill and decode pools: all, or those that pass on equal rates
``deployment_rows``        figures of deployments, in parts of bounded size; equal replicas are solved once
``serving_search``         the exact search
``deployment_search``      its result
``fewest_processors``      the fewest processors for a rate or users, by bisection over replicas
``first_answer``           the best deployment of each kind: aggregated or disaggregated, by data types
=========================  ====================================================================================

If all prefill and decode pools are requested, they are enumerated pair by pair: the transfer time of a KV cache depends
on both splits, and the decode batch on the prefill throughput, so that a Pareto front of each pool alone would not be
exact. For the highest throughput alone, pools can be chosen separately (``pool_pairs``).
"""
