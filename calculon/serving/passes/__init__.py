"""Passes through a served model.

===============  ==============================================================================================
``pass_sizes``   sizes of passes, as columns
``pass_rows``    rows of a pass: layers of the model, attention over a cache, reductions, head, sampling
``exchange``     dispatch of tokens to experts of other ranks, and the way back; ``expert_load`` how uneven it is
``split_cache``  caches whose tokens ranks share, and what these exchange
``row_times``    times of rows: floors, laws of kernels, memory, small reductions
``drafts``       passes, weights and caches of what drafts tokens
``replica``      the passes of a replica under its workload
===============  ==============================================================================================
"""
