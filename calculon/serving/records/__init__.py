"""Inputs of serving: records of deployments and workloads.

==================  ===========================================================================================
``pool``            processors, and the split of each replica over them
``deployment``      record of a deployment; ``deployments`` several with equal choices, as columns
``load``            workload; ``output_lengths`` quantiles and maxima of lengths, and batches that run empty
``number_types``    bytes and arithmetic of the data types of weights and KV caches
``speculation``     speculative decoding: drafted tokens, and tokens per verification
``read_records``    deployments and workloads by name, from a file, or from a mapping
==================  ===========================================================================================
"""
