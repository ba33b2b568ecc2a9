"""Files of deployments: they parse, agree with their schemas and with the prediction, and take names as they are."""

import csv
import json
import shlex
import subprocess
from dataclasses import replace

import jsonschema
import kubernetes_validate
import pytest
import yaml

import calculon
from calculon.advise.deployed import deployed
from calculon.base.errors import SpecError
from calculon.launch.deploy.engine_images import IMAGES, PREFILL
from calculon.launch.deploy.workers import GPU
from calculon.launch.dialects import read_launch
from calculon.serving.engine_scripts import fields_of, server_of
from tests.helpers import ROOT
from tests.store import cache

LISTS = ROOT / "tests" / "launch" / "deploy"
NAME = "meta llama/it's $(touch /tmp/x) `id` $HOME \"}"
"""A checkpoint whose name is a program in every shell."""

KINDS = {
    "replicas": ("llama3-70B", "tp=4 dp=2", "h100", {}),
    "apart": ("llama3-8B", 4, "h100", {"prefill.num_procs": 2, "prefill.tensor_par": 1}),
    "apart on nodes": ("llama3-70B", 32, "h100", {"prefill.num_procs": 16}),
    "experts": ("deepseek-v3", "tp=16", "h200", {"attn_data_par": 16, "expert_par": 16}),
    "nodes": ("llama3-70B", "tp=16", "h100", {}),
}
CASES = [(engine, kind) for engine in IMAGES for kind in KINDS]


@cache
def found_of(engine, kind):
    model, plan, system, changes = KINDS[kind]
    kept = {"kv_block": 32} if engine == "tensorrt-llm" else {}
    served = calculon.serve(
        model, plan, system, changes=changes | kept, prompt=2000, output=500, users=64
    )
    return deployed(served, engine, NAME)


def objects_of(engine, kind):
    text = found_of(engine, kind).files.get("kubernetes.yaml", "")
    return list(yaml.safe_load_all(text)) if text else []


def pods_of(item):
    """Return the pod templates of an object, each with the number of its pods."""
    spec = item.get("spec", {})
    if item["kind"] != "LeaderWorkerSet":
        return [(spec["template"], spec["replicas"])] if "template" in spec else []
    group, count = spec["leaderWorkerTemplate"], spec["replicas"]
    rest = count * (group["size"] - 1)
    return [(group["leaderTemplate"], count), (group["workerTemplate"], rest)]


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_kubernetes_objects_agree_with_the_published_schemas(engine, kind):
    release = kubernetes_validate.latest_version()
    processors = 0
    for item in objects_of(engine, kind):
        if item["kind"] != "LeaderWorkerSet":  # not an object of Kubernetes itself
            kubernetes_validate.validate(item, release, strict=True)
        for template, count in pods_of(item):
            labels = template.setdefault("metadata", {}).setdefault("labels", {"app": "a"})
            spec = {"selector": {"matchLabels": labels}, "template": template}
            pod = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
            kubernetes_validate.validate(pod | {"spec": spec}, release, strict=True)
            (container,) = template["spec"]["containers"]
            processors += count * int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
    found = found_of(engine, kind)
    expected = 0 if "kubernetes.yaml" in found.absent else found.served.deployment.num_procs
    assert processors == expected


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_parts_of_kubernetes_objects_exist(engine, kind):
    """Services select pods, volumes are mounted, and the router names hosts that exist."""
    objects = objects_of(engine, kind)
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert len(names) == len(objects)
    labels = [
        t["metadata"].get("labels", {})
        for one in objects
        for t, _ in pods_of(one)
        if "metadata" in t
    ]
    for one in objects:
        if one["kind"] == "Service":
            wanted = {
                k: v for k, v in one["spec"]["selector"].items() if "leaderworkerset" not in k
            }
            assert any(wanted.items() <= label.items() for label in labels)
        for template, _ in pods_of(one):
            pod = template["spec"]
            mounts = {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", ())}
            assert mounts == {volume["name"] for volume in pod.get("volumes", ())}
            maps = [v["configMap"]["name"] for v in pod.get("volumes", ()) if "configMap" in v]
            assert {("ConfigMap", name) for name in maps} <= names
            (container,) = pod["containers"]
            starts = container["name"] == "engine" and "worker --ray" not in str(
                container["command"]
            )
            assert (NAME.replace("$(", "$$(") in container["command"]) == starts


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_compose_reserves_each_processor_once(engine, kind):
    found = found_of(engine, kind)
    if "compose.yaml" in found.absent:
        assert found.site.across_nodes or found.served.deployment.num_procs > found.site.node
        return
    document = yaml.safe_load(found.files["compose.yaml"])
    jsonschema.validate(document, json.loads((LISTS / "compose_schema.json").read_text()))
    services = document["services"].values()
    devices = [
        number
        for one in services
        if "deploy" in one
        for number in one["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    ]
    assert sorted(map(int, devices)) == list(range(found.served.deployment.num_procs))
    assert sum("ports" in one for one in services) == 1
    used = {config["source"] for one in services for config in one.get("configs", ())}
    assert used == document.get("configs", {}).keys()


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_scripts_run_what_is_predicted(engine, kind):
    found = found_of(engine, kind)
    served = found.served
    server = server_of(served.model, served.system, served.workload)
    for name, text in found.files.items():
        if not name.endswith(".sh") or name == "bench.sh":
            continue
        read = read_launch(text, name, server=server).deployment
        if name.startswith(PREFILL):
            pool = served.deployment.prefill
            assert read["tensor_par"] == pool.tensor_par
            continue
        fields = fields_of(served.deployment)
        open_fields = {"num_procs", "memory_fraction", "token_budget", "engine"}
        if served.deployment.prefill is None:
            open_fields -= {"num_procs"}
        known = read.keys() - open_fields
        assert {one: read[one] for one in known} == {one: fields[one] for one in known}, name
        # The share has a few digits in a script.
        assert read["memory_fraction"] == pytest.approx(fields["memory_fraction"], abs=1e-5)


def _options(words, program):
    """Return the options after a program's words."""
    return {
        word for word in words[len(program) :] if word.startswith("-") and not word[1:2].isdigit()
    }


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_options_exist(engine, kind):
    with (LISTS / "options.csv").open() as file:
        known = {row["program"]: set(row["options"].split()) for row in csv.DictReader(file)}
    found = found_of(engine, kind)
    image = found.site.engine
    server = " ".join(one for one in image.program if one != "--model-path")
    for item in objects_of(engine, kind):
        for template, _ in pods_of(item):
            (container,) = template["spec"]["containers"]
            words = container["command"]
            words = words[4:] if words[0] == "sh" else words
            program = next((one for one in known if words[: len(one.split())] == one.split()), "")
            assert words == [] or program
            if words:
                program = max((p for p in known if words[: len(p.split())] == p.split()), key=len)
                assert _options(words, program.split()) <= known[program], program
    keys = [
        key for worker in found.site.workers for key in _paths(found.site.configuration(worker))
    ]
    assert set(keys) <= known["trtllm-serve configuration"]
    for service in yaml.safe_load_all(found.files["dynamo.yaml"]):
        for one in service.get("spec", {}).get("services", {}).values():
            container = one["extraPodSpec"]["mainContainer"]
            program = " ".join(container.get("command", ()))
            assert not program or _options(container["args"], ()) <= known[program] | known[server]
    benchmark = shlex.split(found.files["bench.sh"].partition("\n\n")[2].replace("\\\n", ""))
    program = next(one for one in known if benchmark[: len(one.split())] == one.split())
    assert _options(benchmark, program.split()) <= known[program]


def _paths(tree, above=""):
    for name, value in tree.items():
        yield from _paths(value, f"{above}{name}.") if isinstance(value, dict) else [above + name]


@pytest.mark.parametrize("engine", IMAGES)
def test_a_router_knows_every_worker(engine):
    """On one machine, and in Kubernetes."""
    found = found_of(engine, "apart")
    hosts = [one for names in found.site.hosts.values() for one in names]
    assert len(hosts) == 2 + found.served.deployment.replicas
    services = yaml.safe_load(found.files["compose.yaml"])["services"]
    said = found.files.get("router.yaml", "") + str(services["router"]["command"])
    (router,) = (one for one in objects_of(engine, "apart") if "-router" in one["metadata"]["name"])
    pods = found.files["kubernetes.yaml"] if "router.yaml" in found.files else str(router)
    assert all(f"{host}:8000" in said for host in hosts)
    assert all(f"{found.site.name}-{host}.{found.site.name}-" in pods for host in hosts)


@pytest.mark.parametrize("engine", IMAGES)
def test_a_benchmark_takes_names_as_they_are(engine, tmp_path):
    """A program of the same name notes the words that it gets."""
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "bench.sh").write_text(found_of(engine, "replicas").files["bench.sh"])
    for name in ("vllm", "python3"):
        stub = tmp_path / name
        stub.write_text('#!/bin/bash\nprintf "%s\\0" "$@" > words\n')
        stub.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", folder / "bench.sh", "host x"], env=environment, check=True)
    words = (folder / "words").read_text().split("\0")
    assert words[words.index("--model") + 1] == NAME
    assert words[words.index("--host") + 1] == "host x"


def test_a_benchmark_sends_the_workload():
    rows = [
        ({"rate": 4.0}, {"--request-rate": "4", "--num-prompts": "480"}, "--max-concurrency"),
        ({"rate": 4.0, "arrival_cv": 2.0}, {"--burstiness": "0.25"}, "--max-concurrency"),
        ({"users": 32}, {"--max-concurrency": "32", "--num-prompts": "320"}, "--request-rate"),
        ({"users": 2, "requests": 7}, {"--num-prompts": "7"}, "--request-rate"),
        ({"prefix_hit": 0.25}, {"--random-prefix-len": "250", "--random-input-len": "750"}, "-q"),
        ({"output_cv": 0.1}, {"--random-range-ratio": "0.173"}, "-q"),
    ]
    for options, expected, absent in rows:
        served = calculon.serve("llama3-8B", "tp=1", "h100", prompt=1000, output=200, **options)
        words = shlex.split(deployed(served, "", "x/y").files["bench.sh"].replace("\\\n", ""))
        assert {name: words[words.index(name) + 1] for name in expected} == expected
        assert absent not in words


def test_what_a_benchmark_lacks_is_listed():
    load = {"prompt": 3000, "output": 200, "users": 8, "think": 60.0, "turns": 3, "output_cv": 0.3}
    served = calculon.serve("llama3-8B", "tp=1", "h100", **load)
    assert len(deployed(served, "vllm", "x/y").unlike) == 3
    assert len(deployed(served, "tensorrt-llm", "x/y").unlike) == 3


def test_a_limited_batch_is_kept():
    served = calculon.serve("llama3-8B", "tp=1", "h100", prompt=500, output=100, tpot_limit=0.012)
    found = deployed(served, "", "x/y")
    assert served.cut == "tpot"
    assert found.engine == "vllm"
    assert found.served.deployment.max_batch == served.batch


def test_what_cannot_be_deployed():
    served = calculon.serve("llama3-8B", "tp=1", "h100", prompt=1000, output=200)
    for name in ("-x", "", "a\nb"):
        with pytest.raises(SpecError, match="--checkpoint: expected the name of a checkpoint"):
            deployed(served, "", name)
    with pytest.raises(SpecError, match="engine: expected one of vllm"):
        deployed(served, "nim", "x/y")
    other = calculon.serve("llama3-8B", "tp=1", "mi300x", prompt=1000, output=200)
    with pytest.raises(SpecError, match="a machine with NVIDIA processors"):
        deployed(other, "", "x/y")
    odd = replace(served.deployment, tensor_par=1, kv_dtype="int8")
    with pytest.raises(SpecError, match="kv_dtype"):
        deployed(replace(served, deployment=odd), "vllm", "x/y")
