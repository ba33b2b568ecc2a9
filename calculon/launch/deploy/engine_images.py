"""Container images of the engines, and the options of workers for disaggregated prefill and for several nodes.

Sources of the options, by release: docs.vllm.ai 0.11, *NixlConnector Usage Guide*, *Data Parallel Deployment* and
*LWS*; docs.sglang.io of 2025-10, *PD Disaggregation* and *Multi-Node Deployment*; nvidia.github.io/TensorRT-LLM 1.0,
*Disaggregated Serving*; docs.nvidia.com/dynamo 0.6, *Support Matrix* for the engines in its images. Tags of the SGLang
and TensorRT-LLM images are recalled.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.launch.dialect import Dialect, Fields
from calculon.launch.engines.sglang import SGLANG
from calculon.launch.engines.tensorrt_llm import TENSORRT_LLM
from calculon.launch.engines.vllm import VLLM

SERVE, PREFILL, DECODE = "serve", "prefill", "decode"
"""Roles of workers: everything, or one half of disaggregated serving."""

PORT = 8000
"""Port of the endpoint, and of every worker in its own container."""

RPC_PORT = 13345
"""Port on which data-parallel vLLM engines find their leader, as in *Data Parallel Deployment*."""

BOOTSTRAP_PORT = 8998
"""Port on which SGLang's decode workers find a prefill worker: its default."""

DYNAMO = "0.6.1"
"""Release of Dynamo, with vLLM 0.11.0, SGLang 0.5.3.post2 and TensorRT-LLM 1.1.0rc5."""

_DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/{}-runtime:" + DYNAMO

_RAY_SCRIPT = "/vllm-workspace/examples/online_serving/multi-node-serving.sh"


@dataclass(frozen=True, slots=True)
class Shell:
    """Shell text that starts a container; ``exec "$@"`` in it runs the command."""

    text: str

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the words of a container that runs the text; a command is passed as arguments, never as text."""
        return ["sh", "-c", self.text, *(["sh", *command] if '"$@"' in self.text else [])]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of a replica that spans several nodes.

    Attributes:
        settings: Settings of a node.
        shell: Shell text around the command; None if the command runs alone.
    """

    settings: Fields
    shell: Shell | None = None


@dataclass(frozen=True, slots=True)
class EngineImage:
    """An engine in containers.

    Attributes:
        dialect: Dialect of its options.
        image: Container image.
        program: Words before the checkpoint.
        roles: Settings of workers that only prefill or only decode.
        environment: Environment of these workers; ``{host}`` is the address of the worker.
        router_image, router: Image of the router between them, and the function from the hosts of prefill and decode
            workers to its command; the third argument is the path of its configuration (TensorRT-LLM).
        nodes: Function from settings, nodes, index of a node (0, or a variable) and address of the leader to the
            options of a node; None if a replica on several nodes needs an MPI launcher.
        dynamo: Framework name, image and module in Dynamo.
        dynamo_roles: Options of its workers by role.
    """

    dialect: Dialect
    image: str
    program: tuple[str, ...]
    roles: Mapping[str, Fields]
    environment: Mapping[str, str]
    router_image: str
    router: Callable[[Sequence[str], Sequence[str], str], list[str]]
    nodes: Callable[[Mapping[str, Any], int, int | str, str], NodeOptions] | None
    dynamo: tuple[str, str, str]
    dynamo_roles: Mapping[str, tuple[str, ...]]


def url(host: str) -> str:
    """Return the address of a worker."""
    return f"http://{host}:{PORT}"


def _vllm_router(prefill: Sequence[str], decode: Sequence[str], _: str) -> list[str]:
    hosts = [word for host in prefill for word in ("--prefill", url(host))]
    hosts += [word for host in decode for word in ("--decode", url(host))]
    start = ["vllm-router", "--policy", "round_robin", "--vllm-pd-disaggregation", *hosts]
    # No image of the router has a documented name, so it is installed into an image of Python.
    install = Shell('pip install --quiet vllm-router && exec "$@"')
    return install.words([*start, "--host", "0.0.0.0", "--port", str(PORT)])


def _sglang_router(prefill: Sequence[str], decode: Sequence[str], _: str) -> list[str]:
    hosts = [w for host in prefill for w in ("--prefill", url(host), str(BOOTSTRAP_PORT))]
    hosts += [word for host in decode for word in ("--decode", url(host))]
    start = ["python3", "-m", "sglang_router.launch_router", "--pd-disaggregation", *hosts]
    return [*start, "--host", "0.0.0.0", "--port", str(PORT)]


def _tensorrt_router(_: Sequence[str], __: Sequence[str], configuration: str) -> list[str]:
    return ["trtllm-serve", "disaggregated", "-c", configuration]


def router_configuration(prefill: Sequence[str], decode: Sequence[str]) -> Fields:
    """Return the configuration of TensorRT-LLM's router (*Disaggregated Serving*)."""
    both = {"context_servers": prefill, "generation_servers": decode}
    return {"hostname": "0.0.0.0", "port": PORT, "backend": "pytorch"} | {
        name: {"num_instances": len(hosts), "urls": [f"{host}:{PORT}" for host in hosts]}
        for name, hosts in both.items()
    }


def _vllm_nodes(
    settings: Mapping[str, Any], nodes: int, index: int | str, leader: str
) -> NodeOptions:
    """Return data-parallel ranks by node if they divide evenly; otherwise one engine over a Ray cluster."""
    ranks = int(settings.get("--data-parallel-size", 1))
    first = index == 0
    if ranks % nodes == 0 and ranks > 1:
        local = ranks // nodes
        found: Fields = {
            "--data-parallel-size-local": local,
            "--data-parallel-address": leader,
            "--data-parallel-rpc-port": RPC_PORT,
        }
        if first:
            return NodeOptions(found)
        found["--headless"] = True
        if isinstance(index, int):
            return NodeOptions(found | {"--data-parallel-start-rank": index * local})
        start = f'exec "$@" --data-parallel-start-rank "$(({index} * {local}))"'
        return NodeOptions(found, Shell(start))
    ray: Fields = {"--distributed-executor-backend": "ray"}
    if first:
        size = "--ray_cluster_size=$LWS_GROUP_SIZE"
        return NodeOptions(ray, Shell(f'bash {_RAY_SCRIPT} leader {size} && exec "$@"'))
    join = f'exec bash {_RAY_SCRIPT} worker --ray_address="$LWS_LEADER_ADDRESS"'
    return NodeOptions(ray, Shell(join))


def _sglang_nodes(
    settings: Mapping[str, Any], nodes: int, index: int | str, leader: str
) -> NodeOptions:
    del settings
    rank = index if isinstance(index, int) else f"$({index})"
    return NodeOptions(
        {"--dist-init-addr": f"{leader}:20000", "--nnodes": nodes, "--node-rank": rank}
    )


_NIXL = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"})
_TRANSFER = {"cache_transceiver_config.backend": "DEFAULT"}
_BOOTSTRAP = ("--disaggregation-bootstrap-port", str(BOOTSTRAP_PORT))


def _of_sglang(role: str) -> Fields:
    return {
        "--disaggregation-mode": role,
        "--disaggregation-transfer-backend": "nixl",
    } | ({_BOOTSTRAP[0]: BOOTSTRAP_PORT} if role == PREFILL else {})


IMAGES: Mapping[str, EngineImage] = {
    "vllm": EngineImage(
        dialect=VLLM,
        image="vllm/vllm-openai:v0.11.0",
        program=("vllm", "serve"),
        roles={role: {"--kv-transfer-config": _NIXL} for role in (PREFILL, DECODE)},
        environment={"VLLM_NIXL_SIDE_CHANNEL_HOST": "{host}"},
        router_image="python:3.12-slim",
        router=_vllm_router,
        nodes=_vllm_nodes,
        dynamo=("vllm", _DYNAMO_IMAGE.format("vllm"), "dynamo.vllm"),
        dynamo_roles={PREFILL: ("--is-prefill-worker",)},
    ),
    "sglang": EngineImage(
        dialect=SGLANG,
        image="lmsysorg/sglang:v0.5.3",
        program=("python3", "-m", "sglang.launch_server", "--model-path"),
        roles={role: _of_sglang(role) for role in (PREFILL, DECODE)},
        environment={},
        router_image="lmsysorg/sglang:v0.5.3",
        router=_sglang_router,
        nodes=_sglang_nodes,
        dynamo=("sglang", _DYNAMO_IMAGE.format("sglang"), "dynamo.sglang"),
        dynamo_roles={
            role: ("--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl")
            + (_BOOTSTRAP if role == PREFILL else ())
            for role in (PREFILL, DECODE)
        },
    ),
    "tensorrt-llm": EngineImage(
        dialect=TENSORRT_LLM,
        image="nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
        program=("trtllm-serve",),
        # The overlap scheduler is not supported by context workers of this release.
        roles={PREFILL: _TRANSFER | {"disable_overlap_scheduler": True}, DECODE: _TRANSFER},
        environment={},
        router_image="nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
        router=_tensorrt_router,
        nodes=None,
        dynamo=("trtllm", _DYNAMO_IMAGE.format("tensorrtllm"), "dynamo.trtllm"),
        dynamo_roles={role: ("--disaggregation-mode", role) for role in (PREFILL, DECODE)},
    ),
}
"""Engines by name."""
