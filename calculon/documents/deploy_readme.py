"""README of a folder with the files of a deployment: how to start, measure and check it, and what is predicted."""

import shlex
from collections.abc import Iterator

from calculon.advise.deployed import Deployed
from calculon.declarations.fields import shown
from calculon.documents.serving_page import deployment_words, limited_words, rates_of
from calculon.launch.deploy.engine_images import DYNAMO, PORT
from calculon.launch.deploy.kubernetes_files import CLAIM
from calculon.launch.deploy.workers import SECRET, TOKEN, Worker
from calculon.render.text_tables import Column, Table

PREDICTION = "prediction.json"
"""File of the prediction, as ``calculon serve -o`` writes it."""


def readme(found: Deployed) -> str:
    """Return the text in Markdown."""
    site, record = found.site, found.served.brief
    title = f"{record.model} on {record.deployment.num_procs:,} x {record.system}"
    lines = [
        f"# {title}, served by {site.engine.dialect.title}",
        "",
        f"{deployment_words(record.deployment)}. Requests: {limited_words(record.workload)}.",
        "",
        *_start(found),
        *_measure(found),
        f"## Predicted ({PREDICTION})",
        "",
        Table(
            (Column("figure", "figure"), Column("value", "value"), Column("remark", "remark")),
            [{"figure": a, "value": b, "remark": c} for a, b, c in rates_of(record)],
        ).markdown(),
        "",
        *_remarks(found),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _start(found: Deployed) -> Iterator[str]:
    site, absent = found.site, found.absent
    checkpoint = shlex.quote(site.checkpoint)
    yield "## Start"
    yield ""
    for worker in site.workers:
        yield f"- {_by_hand(found, worker, checkpoint)}"
    if site.apart:
        words, configuration = site.router(site.hosts, ".")
        where = " in router.yaml" if configuration else ""
        router = shlex.join(words)
        yield f"- The router between them, with the addresses of the workers{where}: `{router}`"
    if "compose.yaml" not in absent:
        yield "- Docker on one machine (`compose.yaml`): `docker compose up -d`"
    if "kubernetes.yaml" not in absent:
        kind = " (needs LeaderWorkerSet)" if site.across_nodes else ""
        yield f"- Kubernetes: `kubectl apply -f kubernetes.yaml`{kind}"
    if "llm-d.yaml" not in absent:
        yield "- llm-d before 0.7: `helm install -f llm-d.yaml NAME llm-d-modelservice/llm-d-modelservice`"
    yield f"- NVIDIA Dynamo {DYNAMO}: `kubectl apply -f dynamo.yaml`"
    yield ""
    yield (
        f"Gated checkpoints need the token `{TOKEN}` (Kubernetes: secret `{SECRET}` with this key). The "
        f"persistent volume claim `{CLAIM}` keeps downloaded checkpoints. The endpoint has port {PORT}."
    )
    yield ""
    several = sum(worker.replicas for worker in site.workers) > 1
    if several and not site.across_nodes:
        yield (
            "Started by hand, each worker on a shared machine needs separate `CUDA_VISIBLE_DEVICES` and `--port`: "
            "edit the scripts."
        )
    if site.apart:
        yield "Workers exchange KV caches by NIXL: images without it need `pip install nixl`."
    if several:
        yield ""
    for name, reason in absent.items():
        yield f"No `{name}`: {reason}."
    if absent:
        yield ""


def _by_hand(found: Deployed, worker: Worker, checkpoint: str) -> str:
    """Return the command that starts a worker without containers."""
    each = f", for each of {worker.replicas:,} replicas" if worker.replicas > 1 else ""
    start = f"bash {worker.role}.sh {checkpoint}"
    engine = found.site.engine
    if worker.nodes == 1:
        return f"By hand{each}: `{start}`"
    if engine.nodes is None:
        ranks = f"-N {worker.nodes} --ntasks-per-node {worker.processors_of_node}"
        return f"With Slurm{each}: `srun {ranks} --mpi=pmix trtllm-llmapi-launch {start}`"
    scripts = sorted(name for name in found.site.scripts() if name.startswith(worker.role))
    if len(scripts) == 1:
        return (
            f"By hand{each}: join {worker.nodes} machines with `ray start`, then on the first one "
            f"`bash {scripts[0]} {checkpoint}`"
        )
    return (
        f"By hand{each}: `bash {worker.role}-nodeN.sh {checkpoint}` on machine N; all of them reach the first one "
        "under the name `leader`"
    )


def _measure(found: Deployed) -> Iterator[str]:
    yield "## Measure and check"
    yield ""
    yield "```sh"
    yield f"bash bench.sh            # sends the predicted requests, writes {found.result_file}"
    yield f"calculon check {found.result_file}   # measured next to predicted"
    yield "```"
    yield ""
    for one in found.unlike:
        yield f"- The benchmark does not reproduce {one}."
    if found.unlike:
        yield ""


def _remarks(found: Deployed) -> Iterator[str]:
    """Yield the settings in which the engine differs from the deployment that was estimated first."""
    title = found.site.engine.dialect.title
    if not found.changes:
        return
    yield f"The prediction is for the settings of {title}, {found.site.engine.dialect.version}:"
    yield ""
    for name, (old, new) in found.changes.items():
        yield f"- `{name}`: {shown(new)} instead of {shown(old)}"
