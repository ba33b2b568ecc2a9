"""Executions that break each rule on forms of data parallelism and on meshes; changes to a valid one."""

_EDITION = {"edition": "corrected"}
_SPLIT = _EDITION | {"optimizer_sharding": True}
_SPREAD = {"tensor_par_comm_type": "rs_ag", "expert_tensor_par": 2}


def _of(stage, **changes):
    return _SPLIT | {"zero_stage": stage} | changes


MALFORMED = {
    "zero_stage_sharding": (
        {"edition": "corrected", "zero_stage": 3},
        "optimizer_sharding: true, since its state is split with zero_stage: 3",
    ),
    "zero_stage_training": (
        {"edition": "corrected", "zero_stage": "0", "training": False},
        "zero_stage: auto, since nothing is trained",
    ),
    "dp_shard_needs_form": (_of("auto", dp_shard=2), "dp_shard: 0 with zero_stage: auto"),
    "fsdp_unit_needs_form": (_of("2", fsdp_unit=3), "fsdp_unit: 1 with zero_stage: 2"),
    "fsdp_prefetch_needs_form": (_of("1", fsdp_prefetch=0), "fsdp_prefetch: 1 with zero_stage: 1"),
    "reshard_after_forward_needs_form": (
        _of("owner", reshard_after_forward=False),
        "reshard_after_forward: true with zero_stage: owner",
    ),
    "sync_once_needs_form": (_of("2", sync_once=True), "sync_once: false with zero_stage: 2"),
    "ddp_bucket_mib_needs_form": (
        _of("fsdp", ddp_bucket_mib=25),
        "ddp_bucket_mib: 0 with zero_stage: fsdp",
    ),
    "no_sync_needs_form": (_of("2", no_sync=False), "no_sync: true with zero_stage: 2"),
    "grad_group_needs_form": (_of("1", grad_group=4), "grad_group: 1 with zero_stage: 1"),
    "overlap_param_gather_needs_form": (
        _of("3", overlap_param_gather=True),
        "overlap_param_gather: false with zero_stage: 3",
    ),
    "grad_sums_needs_form": (
        _of("3", grad_dtype="bfloat16", grad_sums=True),
        "grad_sums: false with zero_stage: 3",
    ),
    "grad_buffer_auto": (_of("2", grad_buffer="full"), "grad_buffer: sharded, since"),
    "latency_once": (
        _EDITION | {"coll_algo": "auto", "latency_per_step": True},
        "latency_per_step: false with coll_algo: auto",
    ),
    "zero_stage_data_par": (
        _EDITION | {"zero_stage": 2, "num_procs": 8, "data_par": 1},
        "zero_stage: auto or 0, since data_par is 1",
    ),
    "dp_shard_split": (_of("3", dp_shard=3), "dp_shard: a divisor of data_par=2"),
    "expert_shards_split": (
        _of("3", num_procs=32, data_par=4, dp_shard=2, **_SPREAD, expert_par=8, expert_par_net=1),
        "dp_shard: expert_par x expert_tensor_par = 16 divides tensor_par x dp_shard = 8",
    ),
    "expert_replicas_apart": (
        _of("1", mesh_order="tp-pp-dp", **_SPREAD),
        "mesh_order: tp-dp-pp, since replicas of experts on 2 ranks",
    ),
    "owner_experts": (_of("owner", **_SPREAD), "zero_stage: experts have more replicas"),
    "fsdp_unit_split": (_of("3", fsdp_unit=4), "fsdp_unit: a divisor of the 6 blocks of a chunk"),
    "owner_split": (
        _of("owner", num_procs=32, data_par=4),
        "data_par: a divisor of the 6 blocks of a stage",
    ),
    "whole_weights_offload": (
        _of("fsdp", weight_offload=True),
        "weight_offload: false with zero_stage: fsdp",
    ),
}

INFEASIBLE = {
    "mesh_size": (
        _EDITION
        | {"mesh_order": "tp-dp-pp", "num_procs": 131072, "data_par": 16384}
        | {"batch_size": 65536},
        "it connects 65536 processors, and there are 131072 (65536 too many)",
    ),
    "mesh_even": (
        _EDITION
        | {"mesh_order": "tp-dp-pp", "num_procs": 8 * 7001, "data_par": 7001}
        | {"batch_size": 7001 * 16},
        "mesh_order tp-dp-pp with tensor_par=4, pipeline_par=2, data_par=7001 uses 4 of the 8 of each network 0, "
        "so that all groups are spread evenly; a100_80g has that for 32768 processors, and there are 56008 "
        "(23240 too many); data_par=4096 would fit",
    ),
}
