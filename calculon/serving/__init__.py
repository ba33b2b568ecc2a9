"""Serving: a deployment of a model that answers requests.

A *pass* carries rows of tokens through the model: chunks of prompts (prefill), one row for each sequence that
generates (decode), or both. Its layers are those of training (:mod:`calculon.architecture`), of so many rows; attention
over a cache takes the place of attention over the sequence. So one code path times one pass and a hundred million:
choices (:class:`~calculon.serving.number_types.NumberTypes`) are Python values, sizes
(:class:`~calculon.serving.pass_sizes.PassSizes`) are columns of arrays, whose last axis is *deployment and batch*.

===================  ==========================================================================================
``deployment``       the record of how a model is served; ``load`` that of what is asked of it; ``asked`` reads both
``deployments``      deployments with equal choices, as columns
``number_types``     bytes and arithmetic of the types of weights and caches
``expert_load``      how unevenly tokens choose experts
``pass_sizes``       sizes of a pass, as columns
``pass_rows``        rows of a pass: layers of the model, attention over a cache, reductions, head, sampling
``split_cache``      caches whose tokens ranks share, and what these exchange
``exchange``         dispatch of tokens to experts of other ranks, and the way back
``row_times``        their times: floors, laws of kernels, memory, small reductions
``cache``            bytes of keys and values; ``rank_memory`` what else a rank holds; ``sequence_room`` what fits
``speculation``      tokens of a verification; ``drafts`` the passes, weights and caches of what drafts them
``steady``           steady state: rate, time per token, mixed passes, static batches, finite runs
``queueing``         the wait before prefill, and how far the batch varies
``output_lengths``   requests that differ: quantiles, the longest of several, batches that run out
``prefixes``         cached prefixes between requests, by tier; ``kept_prefixes`` those of a replica
``replica``          times of the passes of a replica
``operating_point``  the batch that a load leads to, and all figures; ``batch_search`` the search for it
``served_energy``    the energy of a generated token
``served_points``    the records of what is found
``serve``            the answer for one deployment and workload; ``what_helps`` what better machines are worth
``engine_scripts``   commands of vLLM, SGLang and TensorRT-LLM as deployments, and back
===================  ==========================================================================================

All of it is a mean-field estimate of the steady state, and no simulation of single requests. It exists in edition
``corrected`` alone.
"""
