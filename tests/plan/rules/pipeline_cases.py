"""Cases of rules on schedule and layout of a pipeline: changes, field, expected, found."""

CORRECTED = {"edition": "corrected"}
SINGLE = CORRECTED | {"num_procs": 8, "pipeline_par": 1}
GPIPE = CORRECTED | {"pp_schedule": "gpipe"}
CHUNKS = CORRECTED | {"pipeline_interleaving": 2}
THREE = CORRECTED | {"num_procs": 24, "pipeline_par": 3, "data_par": 2}

MALFORMED = {
    "stages_need_pipeline": (
        SINGLE | {"pp_schedule": "zb_h1"},
        "pp_schedule: 1f1b, since pipeline_par is 1",
    ),
    "stages_need_one_chunk": (
        CHUNKS | {"pp_schedule": "gpipe"},
        "pp_schedule: 1f1b with pipeline_interleaving=2",
    ),
    "schedule_needs_training": (
        GPIPE | {"training": False},
        "pp_schedule: 1f1b, since inference has only forward passes",
    ),
    "dualpipe_even": (
        CORRECTED | {"num_procs": 24, "pipeline_par": 3, "pp_schedule": "dualpipe"},
        "pipeline_par: an even number with pp_schedule=dualpipe, half of which mirrors the other",
    ),
    "dualpipe_filled": (
        CORRECTED | {"pp_schedule": "dualpipe", "microbatch_size": 4, "batch_size": 16},
        "batch_size: at least 2 pipeline_par = 4 microbatches with pp_schedule=dualpipe",
        "2",
    ),
    "dualpipe_replicas": (
        CORRECTED | {"pp_schedule": "dualpipe", "zero_stage": "2", "optimizer_sharding": True},
        "zero_stage: 0 or 1 with pp_schedule=dualpipe, whose ranks add up the gradients of a batch in pairs",
    ),
    "folded_layout": (
        CHUNKS | {"pp_schedule": "zbv", "pp_layout": "balanced"},
        "pp_layout: uniform with pp_schedule=zbv, whose first rank has both ends of the model",
    ),
    "layout_stated_once": (
        CORRECTED | {"pp_layout": "balanced", "last_stage_blocks": 5},
        "pp_layout: uniform, since first_stage_blocks or last_stage_blocks is stated",
    ),
    "listed_once": (
        CORRECTED | {"stage_blocks": "6-6", "pp_layout": "balanced"},
        "pp_layout: uniform, since stage_blocks lists all stages",
    ),
    "listed_blocks": (
        CORRECTED | {"stage_blocks": "6-5"},
        "stage_blocks: pipeline_par x pipeline_interleaving = 2 counts that add up to num_blocks = 12",
        "2 that add up to 11",
    ),
    "modules_place": (
        THREE | {"stage_blocks": "6-5m-1"},
        "stage_blocks: m after all blocks, in the last chunk of a stage other than the first",
    ),
    "stage_blocks": (
        CORRECTED | {"last_stage_blocks": 12},
        "last_stage_blocks: blocks that leave one for each of 1 other stage, of 12",
    ),
    "ends_as_blocks": (
        CORRECTED | {"num_procs": 64, "pipeline_par": 8, "pp_layout": "embedding_as_block"},
        "pp_layout: uniform, since 12 + 1 blocks are less than two for each of 8 stages",
    ),
    "overlap_needs_work": (
        CORRECTED | {"p2p_overlap": True},
        "p2p_overlap: false with pp_schedule: 1f1b and one chunk, since there is no other work to overlap with",
    ),
}

MORE = (
    (SINGLE | {"p2p_overlap": True}, "p2p_overlap: expected false, since pipeline_par is 1"),
    (
        CORRECTED | {"first_stage_blocks": 6, "last_stage_blocks": 5},
        "last_stage_blocks: expected all 12 blocks on the two stages, found 6 + 5",
    ),
    (
        CHUNKS | {"training": False, "p2p_overlap": True},
        "false with pipeline_interleaving=2 in inference",
    ),
)
"""Further refusals, and what they say."""

VALID = (
    GPIPE | {"p2p_overlap": True},
    CHUNKS | {"p2p_overlap": True},
    CORRECTED | {"training": False, "p2p_overlap": True},
    CORRECTED | {"first_stage_blocks": 7},
    CORRECTED | {"first_stage_blocks": 7, "last_stage_blocks": 5, "pp_schedule": "zb_h1"},
    GPIPE | {"pp_layout": "balanced"},
    GPIPE | {"stage_blocks": "5-7"},
    CHUNKS | {"stage_blocks": "2-4-5-1"},
    CHUNKS | {"pp_layout": "balanced"},
    CHUNKS | {"first_stage_blocks": 7},
    CORRECTED | {"pp_layout": "both_as_blocks"},
    CHUNKS | {"pp_layout": "head_as_block"},
)
"""What fits together."""
