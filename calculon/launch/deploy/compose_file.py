"""``compose.yaml`` of a deployment on one machine.

Sources: docs.docker.com, *Compose file reference* (``configs.content`` needs release 2.23.1) and *Run Docker Compose
services with GPU access*; docs.vllm.ai, *Using Nginx*, for the load balancer of several replicas.
"""

from collections.abc import Iterator
from typing import Any

from calculon.launch.deploy.engine_images import PORT
from calculon.launch.deploy.manifest_text import manifest
from calculon.launch.deploy.workers import CACHE, FOLDER, TOKEN, Site, Worker

_NGINX = """\
events {{}}
http {{
  upstream engines {{
    least_conn;
{servers}
  }}
  server {{
    listen {port};
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_read_timeout 3600s;
    }}
  }}
}}
"""
"""Configuration of the load balancer; responses are streamed, hence without buffers."""


def no_compose(site: Site) -> str:
    """Return the reason why a deployment does not run on one machine; empty if it does."""
    if site.across_nodes:
        return "a replica spans several machines"
    used = sum(worker.replicas * worker.processors for worker in site.workers)
    if used > site.node:
        return f"it needs {used:,} GPUs, and a machine has {site.node:,}"
    return ""


def compose_text(site: Site) -> str:
    """Return the file: all workers, and a router or a load balancer if there are several."""
    services: dict[str, Any] = {}
    configs: dict[str, Any] = {}
    first = 0
    for worker in site.workers:
        if configuration := site.configuration(worker):
            configs[f"{worker.role}.yaml"] = {"content": _escaped(manifest(configuration))}
        for host in site.hosts[worker.role]:
            devices = [str(first + one) for one in range(worker.processors)]
            services[host] = _service(site, worker, host, devices)
            first += worker.processors
    if site.apart:
        services["router"], added = _router(site)
        configs |= added
    elif len(services) > 1:
        servers = "\n".join(f"    server {host}:{PORT};" for host in services)
        content = _NGINX.format(servers=servers, port=PORT)
        configs["nginx.conf"] = {"content": content}
        services["balancer"] = {
            "image": "nginx:1.27",
            "depends_on": [*services],
            "ports": [f"{PORT}:{PORT}"],
            "configs": [{"source": "nginx.conf", "target": "/etc/nginx/nginx.conf"}],
        }
    else:
        next(iter(services.values()))["ports"] = [f"{PORT}:{PORT}"]
    return manifest(
        {"name": site.name, "services": services} | ({"configs": configs} if configs else {})
    )


def _service(site: Site, worker: Worker, host: str, devices: list[str]) -> dict[str, Any]:
    reserved = {"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}
    environment = {TOKEN: f"${{{TOKEN}:-}}"}
    if site.apart:
        environment |= {n: v.format(host=host) for n, v in site.engine.environment.items()}
    result: dict[str, Any] = {
        "image": site.engine.image,
        "entrypoint": [],  # images of engines start different programs
        "command": [_escaped(word) for word in site.command(worker)],
        "environment": environment,
        "volumes": [*_volumes(site)],
        "ipc": "host",  # tensor parallelism exchanges data in shared memory
        "deploy": {"resources": {"reservations": {"devices": [reserved]}}},
    }
    if site.configuration(worker):
        name = f"{worker.role}.yaml"
        result["configs"] = [{"source": name, "target": f"{FOLDER}/{name}"}]
    return result


def _volumes(site: Site) -> Iterator[dict[str, Any]]:
    """Yield the cache of downloaded checkpoints, and the folder of a local one."""
    yield {"type": "bind", "source": "${HF_HOME:-~/.cache/huggingface}", "target": CACHE}
    if site.checkpoint.startswith("/"):
        folder = _escaped(site.checkpoint)
        yield {"type": "bind", "source": folder, "target": folder, "read_only": True}


def _router(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the service of the router, and its configuration."""
    words, configuration = site.router(site.hosts)
    service: dict[str, Any] = {
        "image": site.engine.router_image,
        "entrypoint": [],
        "command": [_escaped(word) for word in words],
        "depends_on": [name for names in site.hosts.values() for name in names],
        "ports": [f"{PORT}:{PORT}"],
        "restart": "on-failure",  # it may start before the workers
    }
    if not configuration:
        return service, {}
    service["configs"] = [{"source": "router.yaml", "target": f"{FOLDER}/router.yaml"}]
    return service, {"router.yaml": {"content": manifest(configuration)}}


def _escaped(text: str) -> str:
    """Return a text that compose passes on unchanged: it would replace variables."""
    return text.replace("$", "$$")
