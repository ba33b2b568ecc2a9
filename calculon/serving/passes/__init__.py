"""Forward passes of a served model: prefill, decode, and mixed passes of chunked prefill.

===============  ==============================================================================================
``pass_sizes``   sizes of passes, as columns
``pass_rows``    rows of a pass: layers of the model, attention over a KV cache, all-reduces, LM head, sampling
``exchange``     expert parallelism: dispatch and combine of tokens, and the imbalance of experts
``split_cache``  decode context parallelism: KV caches split over ranks by token, and their collectives
``row_times``    times of rows: floors, laws of kernels, memory, small all-reduces
``drafts``       speculative decoding: passes, weights and KV caches of drafts
``replica``      the passes of a replica under its workload
===============  ==============================================================================================
"""
