"""Has the serving image on the head under our tag, and tells what engine is in it: pull_image.py REFERENCE TAG KEEP DEPLOYMENT

REFERENCE is an image by digest, which is pulled unless it is there, or the id of one that was built or loaded here. The pull goes on
when this program ends (docker_pull.py), and ends when another image is wanted. KEEP is the deployment's folder on this node.
For a private registry REGISTRY_USERNAME and REGISTRY_PASSWORD come by the environment.
"""

import json
import os
import platform
import re
import sys

from containers import docker, fail, inspected
from docker_pull import BackgroundPull
from files import text_of
from model_files import say
from signatures import explain, render

ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
# Ray from here on answers nobody without the token.
TOKEN_SINCE = (2, 52)
LOGIN = (
    "pulumi config set --path registry.username NAME and pulumi config set --secret registryPassword PASSWORD, "
    "or `docker login` on the head; then pulumi up"
)
# No program that is started here needs it but one, which gets it by stdin.
NAME, PASSWORD = (os.environ.pop(name, None) for name in ("REGISTRY_USERNAME", "REGISTRY_PASSWORD"))


def fail_pull(reference, said):
    refused = any(word in said.lower() for word in ("unauthorized", "denied", "authentication required", "no basic auth"))
    fail(
        f"{render(explain(said))}{said}\nthe pull of {reference} failed: its last lines are above"
        + (f"\n  mend: is it spelled right? If it is private: {LOGIN}" if refused else "")
    )


def bring(reference, keep):
    """Has the image here; whether it came now, and bytes and seconds of the pull that brought it, None: it was here."""
    pull = BackgroundPull(keep)
    pull.end(wanted=reference)
    came = inspected("image", reference, "{{.Id}}") is None
    if came and reference.startswith("sha256:"):
        fail(
            f"no image {reference} on the head: build or load it there (`docker build`, `docker load`), and set `image` to the id\n"
            "  that `docker image inspect --format '{{.Id}}' NAME` prints there"
        )
    if came:
        pull.start(reference, NAME and [NAME, PASSWORD])
        if pull.follow().get("code") != 0:
            fail_pull(reference, pull.log())
        if inspected("image", reference, "{{.Id}}") is None:
            fail(f"image {reference} was pulled, and Docker does not know it here: does `docker context show` name another daemon?")
    state = pull.state()
    ours = state.get("reference") == reference and state.get("code") == 0
    return came, {"bytes": state["done"], "seconds": state["seconds"]} if ours else None


def require_name(image):
    """Ends the step when nothing but our tag would hold the image: it would go with the deployment, and with any `docker image prune`."""
    names = [json.loads(inspected("image", image, form) or "null") or [] for form in ("{{json .RepoTags}}", "{{json .RepoDigests}}")]
    # One of Docker's image stores gives each tag a digest, too.
    if all(re.match("dgx-spark-serving[:@]", name) for name in sum(names, [])):
        fail(f"image {image} has no name of its own, and would be removed with the deployment: docker tag {image} NAME, on the head")


def require_architecture(reference):
    machine = ARCHITECTURES.get(platform.machine(), platform.machine())
    built_for = inspected("image", reference, "{{.Architecture}}")
    if built_for != machine:
        fail(f"the image is for {built_for}, this machine is {machine}: choose an image that is built for it")


def look_into(tag, deployment):
    """What engine_versions.py prints of the image."""
    done = docker(
        *("run", "--rm", "--pull", "never", "--network", "none", "--label", f"dgx-spark-serving.deployment={deployment}"),
        *("--entrypoint", "python3", tag, "-c", text_of("engine_versions.py")),
    )
    try:
        # Some images' Python says something first.
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return fail(
            f"{done.stdout}{done.stderr.strip()}\nimage {tag} does not tell what is in it: its python3, which vLLM and Ray run in, "
            f"did not run in it (docker run: exit code {done.returncode}); its words are above"
        )


def engine_in(tag, deployment):
    """Versions of what is in the image. Ends the step when the engine or Ray is missing."""
    found = look_into(tag, deployment)
    missing = [name for name in ("vllm", "ray") if not found["commands"][name]]
    if missing:
        fail(
            f"image {tag} has no {' and no '.join(missing)} (`{missing[0]} --version` would not be found): use one with vLLM and Ray in it. "
            "vLLM's own images come without Ray from 0.18 on; docs/image.md tells how to build one on the head"
        )
    versions = found["versions"]
    ray = tuple(int(number) for number in re.findall(r"\d+", versions["ray"] or "")[:2])
    if ray < TOKEN_SINCE:
        say(
            f"warning: Ray {versions['ray'] or 'of unknown version'}: before 2.52 it knows no token, and whoever reaches its ports can run "
            "programs on the nodes (docs/decisions.md)"
        )
    return versions


def main(reference, tag, keep, deployment):
    came, pulled = bring(reference, keep)
    require_name(reference)
    require_architecture(reference)
    image = inspected("image", reference, "{{.Id}}")
    tagged = inspected("image", tag, "{{.Id}}") == image
    if not tagged:
        done = docker("tag", reference, tag)
        if done.returncode != 0:
            fail(f"the image could not be tagged as {tag}: {done.stderr.strip()}")
    engine = engine_in(tag, deployment)
    print(json.dumps({"changed": came or not tagged, "id": image, "engine": engine, "pull": pulled}))


main(*sys.argv[1:])
