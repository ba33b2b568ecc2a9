"""Values of the llm-d chart, and the DynamoGraphDeployment of NVIDIA Dynamo.

Sources: github.com/llm-d-incubation/llm-d-modelservice, ``values.yaml`` and ``examples/values-pd.yaml`` (chart of llm-d
before 0.7, which deploys with Kustomize instead); docs.nvidia.com/dynamo 0.6, *Multinode Deployment*, and
``examples/backends/*/deploy`` of github.com/ai-dynamo/dynamo for the fields of ``nvidia.com/v1alpha1``.
"""

from typing import Any

from calculon.base.units import GIB
from calculon.launch.deploy.engine_images import DECODE, PORT, PREFILL, SERVE
from calculon.launch.deploy.manifest_text import manifest
from calculon.launch.deploy.workers import FOLDER, GPU, SECRET, Site, Worker

Item = dict[str, Any]

_VOLUME_MARGIN = 1.2
"""Size of the volume of a checkpoint, relative to the weights: tokenizer, and files of other formats."""


def no_llm_d(site: Site) -> str:
    """Return the reason why the chart of llm-d does not describe a deployment; empty if it does."""
    if site.engine.dialect.name != "vllm":
        return "the chart of llm-d starts vLLM"
    return "a replica spans several nodes (see kubernetes.yaml)" if site.across_nodes else ""


def llm_d_text(site: Site, weights: float) -> str:
    """Return the values of the llm-d chart, for a model of `weights` bytes."""
    artifacts: Item = {"name": site.checkpoint, "labels": {"llm-d.ai/model": site.name}}
    if site.checkpoint.startswith("/"):
        # A claim, and the path of the checkpoint in it.
        artifacts["uri"] = f"pvc://model-cache{site.checkpoint}"
    else:
        size = max(1, round(_VOLUME_MARGIN * weights / GIB))
        artifacts |= {"uri": f"hf://{site.checkpoint}", "size": f"{size}Gi"}
    artifacts["authSecretName"] = SECRET
    values: Item = {
        "fullnameOverride": site.name,
        "multinode": False,
        "modelArtifacts": artifacts,
        "routing": {"servicePort": PORT, "proxy": {"enabled": site.apart, "connector": "nixlv2"}},
    }
    workers = {worker.role: worker for worker in site.workers}
    # Workers that do everything are decode workers without prefill workers.
    values[DECODE] = _llm_d_worker(site, workers.get(SERVE) or workers[DECODE])
    prefills = workers.get(PREFILL)
    values[PREFILL] = {"create": False} if prefills is None else _llm_d_worker(site, prefills)
    return manifest(values)


def _llm_d_worker(site: Site, worker: Worker) -> Item:
    groups = int(worker.settings.get("--data-parallel-size", 1))
    container: Item = {
        "name": "vllm",
        "image": site.engine.image,
        "modelCommand": "vllmServe",
        "args": site.options(worker),
        "mountModelVolume": True,
        "resources": {kind: {GPU: str(worker.processors)} for kind in ("limits", "requests")},
    }
    if site.apart:
        role = site.engine.roles[worker.role]
        container["args"] += [word for name, value in role.items() for word in (name, value)]
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["env"] = [{"name": n, "valueFrom": address} for n in site.engine.environment]
    return {
        "create": True,
        "replicas": worker.replicas,
        "parallelism": {
            "tensor": int(worker.settings["--tensor-parallel-size"]),
            "data": groups,
            "dataLocal": groups,
        },
        "containers": [container],
    }


def dynamo_text(site: Site) -> str:
    """Return the DynamoGraphDeployment, and the ConfigMap of its configurations if there are any."""
    framework, image, module = site.engine.dynamo
    configured = {
        f"{worker.role}.yaml": manifest(found)
        for worker in site.workers
        if (found := site.whole_configuration(worker))
    }
    services: Item = {
        "Frontend": {
            "dynamoNamespace": site.name,
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": image}},
        }
    }
    for worker in site.workers:
        services[f"{worker.role.capitalize()}Worker"] = _dynamo_worker(site, worker, image, module)
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": site.name},
        "spec": {"backendFramework": framework, "services": services},
    }
    if not configured:
        return manifest(graph)
    name = f"{site.name}-config"
    metadata = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return manifest(metadata | {"data": configured}, graph)


def _dynamo_worker(site: Site, worker: Worker, image: str, module: str) -> Item:
    model = "--model" if module == "dynamo.vllm" else "--model-path"
    role = site.engine.dynamo_roles.get(worker.role, ())
    container: Item = {"image": image, "command": ["python3", "-m", module]}
    pod: Item = {"mainContainer": container}
    if site.whole_configuration(worker):
        options = ["--extra-engine-args", f"{FOLDER}/{worker.role}.yaml"]
        container["volumeMounts"] = [{"name": "config", "mountPath": FOLDER}]
        pod["volumes"] = [{"name": "config", "configMap": {"name": f"{site.name}-config"}}]
    else:
        options = site.options(worker)
    escaped = site.checkpoint.replace("$(", "$$(")
    container["args"] = [model, escaped, "--served-model-name", escaped, *options, *role]
    result: Item = {
        "dynamoNamespace": site.name,
        "envFromSecret": SECRET,
        "componentType": "worker",
        "replicas": worker.replicas,
        "resources": {"limits": {"gpu": str(worker.processors_of_node)}},
        "extraPodSpec": pod,
    }
    if site.apart:
        result["subComponentType"] = worker.role
    if worker.nodes > 1:
        result["multinode"] = {"nodeCount": worker.nodes}
    return result
