"""Plain Kubernetes objects of a deployment: engines, configurations, and the Services in front of them.

Replicas within a node are a Deployment; workers that only prefill or only decode a StatefulSet, whose pods have names
that the router needs; replicas over several nodes a LeaderWorkerSet. Sources: kubernetes.io, *Schedule GPUs* and
*StatefulSet*; lws.sigs.k8s.io, *vLLM* and *SGLang* examples; docs.vllm.ai, *Using Kubernetes*.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.launch.deploy.engine_images import PORT, NodeOptions, Shell
from calculon.launch.deploy.manifest_text import manifest
from calculon.launch.deploy.workers import CACHE, FOLDER, GPU, SECRET, TOKEN, Site, Worker

CLAIM = "model-cache"
"""Persistent volume claim with downloaded checkpoints."""

LEADER_LABEL, GROUP_LABEL = "role", "leaderworkerset.sigs.k8s.io/name"

_LEADER, _INDEX = "$(LWS_LEADER_ADDRESS)", "LWS_WORKER_INDEX"

_LOADING = {"periodSeconds": 30, "failureThreshold": 120}
"""Patience of the startup probe: an hour, since large checkpoints are loaded from remote storage."""

Item = dict[str, Any]


def no_kubernetes(site: Site) -> str:
    """Return the reason why plain objects cannot describe a deployment; empty if they can."""
    if site.across_nodes and site.engine.nodes is None:
        title = site.engine.dialect.title
        return f"a replica of {title} on several nodes needs an MPI launcher (see dynamo.yaml)"
    return ""


def kubernetes_text(site: Site) -> str:
    """Return all objects as one file."""
    return manifest(*kubernetes_objects(site))


def kubernetes_objects(site: Site) -> list[Item]:
    """Return the objects: configurations, workers, Services, and the router between separate workers."""
    configured = {
        f"{worker.role}.yaml": manifest(found)
        for worker in site.workers
        if (found := site.configuration(worker))
    }
    objects: list[Item] = []
    hosts: dict[str, list[str]] = {}
    for worker in site.workers:
        name = f"{site.name}-{worker.role}" if site.apart else site.name
        objects += _worker(site, worker, name)
        # Pods of a StatefulSet, and leaders of a LeaderWorkerSet, are hosts in the domain of their Service.
        hosts[worker.role] = [f"{name}-{index}.{name}" for index in range(worker.replicas)]
    if site.apart:
        words, configuration = site.router(hosts)
        if configuration:
            configured["router.yaml"] = manifest(configuration)
        objects += _router(site, words, configured=bool(configuration))
    if configured:
        objects.insert(0, _object("v1", "ConfigMap", f"{site.name}-config", data=configured))
    return objects


def _object(version: str, kind: str, name: str, **more: Any) -> Item:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}} | more


def _worker(site: Site, worker: Worker, name: str) -> Iterator[Item]:
    """Yield the objects of equal replicas, and their Service."""
    labels = {"app": name}
    if worker.nodes > 1:
        yield _group(site, worker, name)
        if not site.apart:  # a LeaderWorkerSet creates a headless Service
            yield _service(name, {GROUP_LABEL: name, LEADER_LABEL: "leader"})
        return
    template = {"metadata": {"labels": labels}, "spec": _pod(site, worker)}
    spec: Item = {
        "replicas": worker.replicas,
        "selector": {"matchLabels": labels},
        "template": template,
    }
    if not site.apart:
        yield _object("apps/v1", "Deployment", name, spec=spec)
        yield _service(name, labels)
        return
    spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    yield _object("apps/v1", "StatefulSet", name, spec=spec)
    service = _service(name, labels)
    # Headless, and before the pods are ready: the router looks for each of them by name.
    service["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    yield service


def _service(name: str, selector: Mapping[str, str]) -> Item:
    port = {"name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP"}
    return _object("v1", "Service", name, spec={"selector": dict(selector), "ports": [port]})


def _pod(
    site: Site, worker: Worker, node: NodeOptions | None = None, *, answers: bool = True
) -> Item:
    """Return the specification of a pod; `answers` if it has the endpoint of a replica."""
    # Kubernetes replaces $(NAME) in words; only the options of a node mean it.
    fixed = [_escaped(word) for word in site.command(worker)]
    words = site.command(worker, node)
    command = fixed + words[len(fixed) :]
    if node is not None and node.shell is not None:
        command = Shell(_escaped(node.shell.text)).words(command)
    container: Item = {
        "name": "engine",
        "image": site.engine.image,
        "command": command,
        "env": [*_environment(site)],
        "resources": {"limits": {GPU: str(worker.processors_of_node)}},
        "volumeMounts": [
            {"name": "cache", "mountPath": CACHE},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes: list[Item] = [
        {"name": "cache", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if answers:
        probe = {"httpGet": {"path": "/health", "port": PORT}}
        container["ports"] = [{"name": "http", "containerPort": PORT}]
        container |= {"startupProbe": probe | _LOADING, "readinessProbe": probe}
    if site.configuration(worker):
        container["volumeMounts"].append({"name": "config", "mountPath": FOLDER})
        volumes.append({"name": "config", "configMap": {"name": f"{site.name}-config"}})
    if site.checkpoint.startswith("/"):
        mounted = {"name": "checkpoint", "mountPath": site.checkpoint, "readOnly": True}
        container["volumeMounts"].append(mounted)
        volumes.append({"name": "checkpoint", "hostPath": {"path": site.checkpoint}})
    return {"containers": [container], "volumes": volumes}


def _escaped(text: str) -> str:
    return text.replace("$(", "$$(")


def _environment(site: Site) -> Iterator[Item]:
    key = {"name": SECRET, "key": TOKEN, "optional": True}
    yield {"name": TOKEN, "valueFrom": {"secretKeyRef": key}}
    for name in site.engine.environment if site.apart else ():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _group(site: Site, worker: Worker, name: str) -> Item:
    """Return the LeaderWorkerSet of replicas over several nodes."""
    assert site.engine.nodes is not None  # no_kubernetes refuses engines without
    first, other = (
        site.engine.nodes(worker.settings, worker.nodes, index, _LEADER) for index in (0, _INDEX)
    )
    leader = {
        "metadata": {"labels": {LEADER_LABEL: "leader"}},
        "spec": _pod(site, worker, first),
    }
    rest = {"spec": _pod(site, worker, other, answers=False)}
    template = {
        "size": worker.nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": rest,
    }
    spec = {"replicas": worker.replicas, "leaderWorkerTemplate": template}
    return _object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec=spec)


def _router(site: Site, words: Sequence[str], *, configured: bool) -> Iterator[Item]:
    """Yield the Deployment of the router and the Service of the whole deployment."""
    labels = {"app": f"{site.name}-router"}
    container: Item = {
        "name": "router",
        "image": site.engine.router_image,
        "command": list(words),
        "ports": [{"name": "http", "containerPort": PORT}],
    }
    pod: Item = {"containers": [container]}
    if configured:
        container["volumeMounts"] = [{"name": "config", "mountPath": FOLDER}]
        pod["volumes"] = [{"name": "config", "configMap": {"name": f"{site.name}-config"}}]
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    yield _object("apps/v1", "Deployment", f"{site.name}-router", spec=spec)
    yield _service(site.name, labels)
