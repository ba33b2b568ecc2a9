"""Search for deployments: the best way to serve a model, over processor counts, splits, data types and schedulers.

=========================  ====================================================================================
``deployment_vocabulary``  names of fields and figures that a question may use, and their values
``deployment_space``       deployments of a question, numbered: with chunked prefill, or separate prefill pools
``deployment_rows``        figures of deployments, in parts of bounded size; equal replicas are solved once
``serving_search``         the exact search
``deployment_search``      its result
=========================  ====================================================================================

Prefill and decode pools are enumerated pair by pair. The transfer time of a KV cache depends on both splits, and the
decode batch depends on the prefill throughput, so a Pareto front of each pool alone would not be exact.
"""
