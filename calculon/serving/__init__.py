"""LLM serving: deployments with continuous batching, chunked prefill, prefix caching and speculative decoding.

A *pass* (forward pass) carries rows of tokens through the model: chunks of prompts (prefill), one row for each sequence
that generates (decode), or both. Its layers are the layers of training (:mod:`calculon.architecture`) with that number
of rows; attention over the KV cache replaces attention over the sequence. One code path serves one deployment and a
hundred million: choices (:class:`~calculon.serving.records.deployment.Deployment`) are Python values, sizes
(:class:`~calculon.serving.records.deployments.Deployments`, :class:`~calculon.serving.passes.pass_sizes.PassSizes`) are
columns of arrays whose last axis is *deployment and batch*.

======================  =======================================================================================
``records``             inputs: deployments, workloads, data types, speculative decoding
``passes``              rows of passes and their times; the passes of a replica
``caches``              memory of a rank: weights, KV caches of running sequences, cached prefixes
``states``              steady state, queueing, and the batch that a load leads to
``default_deployment``  default deployment for a number of processors
``serve``               result for one deployment and workload; ``hardware_gains`` gains from better hardware
``by_batch``            figures of a deployment at every batch
``engine_scripts``      commands of vLLM, SGLang and TensorRT-LLM as deployments, and back
``benchmark_scripts``   benchmark commands that send a workload to a deployment
======================  =======================================================================================

Everything is a mean-field estimate of the steady state, not a simulation of single requests. It exists only in edition
``corrected``.
"""
