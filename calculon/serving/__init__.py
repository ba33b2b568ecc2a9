"""Serving: a deployment of a model that answers requests.

A *pass* carries rows of tokens through the model: chunks of prompts (prefill), one row for each sequence that
generates (decode), or both. Its layers are those of training (:mod:`calculon.architecture`), of so many rows; attention
over a cache takes the place of attention over the sequence. So one code path serves one deployment and a hundred
million: choices (:class:`~calculon.serving.records.deployment.Deployment`) are Python values, sizes
(:class:`~calculon.serving.records.deployments.Deployments`, :class:`~calculon.serving.passes.pass_sizes.PassSizes`) are
columns of arrays, whose last axis is *deployment and batch*.

====================  =========================================================================================
``records``           what is asked: deployments, workloads, types of numbers, drafts
``passes``            rows of passes and their times; the passes of a replica
``caches``            memory of a rank: weights, caches of the sequences at hand, prefixes between requests
``states``            the steady state, the wait, and the batch that a load leads to
``plain_deployment``  a deployment for a number of processors
``serve``             the answer for one deployment and workload; ``what_helps`` what better machines are worth
``by_batch``          a deployment at every batch
``engine_scripts``    commands of vLLM, SGLang and TensorRT-LLM as deployments, and back
====================  =========================================================================================

All of it is a mean-field estimate of the steady state, and no simulation of single requests. It exists in edition
``corrected`` alone.
"""
