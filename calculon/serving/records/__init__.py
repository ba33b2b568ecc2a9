"""What is asked of serving.

==================  ===========================================================================================
``pool``            processors, and how each replica is split over them
``deployment``      how a model is served; ``deployments`` several with equal choices, as columns
``load``            the workload; ``output_lengths`` requests that differ: quantiles, the longest of several
``number_types``    bytes and arithmetic of the types of weights and caches
``speculation``     drafted tokens, and how many a verification yields
``asked``           deployments and workloads by name, from a file, or from a mapping
==================  ===========================================================================================
"""
