"""Time and memory of layers, blocks, stages and batches, and the traffic of each dimension of parallelism.

The modules are listed in the order of computation, and each imports only from modules before it:

- collectives: ``process_groups`` (their cost, and the exposed time of overlap), ``tensor`` (collectives of layers);
- layers: ``layer_cost``, ``axis_overlap`` (context-parallel rings, exchange of experts), ``launches`` (waits for the
  host), ``backward_memory``;
- a block and its optimizer step: ``optimizer_step``, ``block_cost``, ``mixture`` (of two halves, of several kinds);
- embedding and LM head: ``data.synced``, ``embedding_head``, ``prediction_modules``;
- all of these for a table of executions: ``block_tables``;
- data-parallel traffic: ``data.data_collectives``, ``data.published_laws``, ``data.replication``, ``data.strategies``,
  ``data.stage_traffic``;
- a stage for one microbatch: ``copies``, ``gradient_accumulation``, ``pipeline.transfers``, ``block_times``, and
  ``stage``, which has these steps one after the other;
- pipelines whose stages differ: ``pipeline.orders``, ``pipeline.timeline``, ``pipeline.simulation``,
  ``pipeline.schedules``, ``pipeline.interleaved``, ``chunk_times``, ``uneven``;
- an iteration: ``pipeline_stages`` (all kinds of stages, and the slowest), ``iteration_times``;
- memory: ``in_flight``, ``stage_memory``;
- statistics: ``quoted_figures``, ``batch``.

Steps are functions of records that return records. The classes of ``stage``, ``pipeline_stages``, ``iteration_times``
and ``batch`` call each step when a column first needs it: a search asks a batch for some columns, and the steps
of other columns never run.

Arrays have one entry per execution, or per distinct block, on the last axis. *Base* blocks are inside of a stage, and
an *edge* block is the last of a chunk, next to a pipeline transfer.
"""
