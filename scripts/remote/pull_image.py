"""Has the serving image on the head under our tag, and tells what engine is in it: pull_image.py REFERENCE TAG KEEP DEPLOYMENT

REFERENCE is an image by digest, which is pulled unless it is there, or the id of one that was built or loaded here. The pull goes on
when this program ends (background_pull.py): Docker would throw away all that it has of it. KEEP is the deployment's folder on
this node. For a private registry REGISTRY_USERNAME and REGISTRY_PASSWORD come by the environment.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time

from containers import docker, fail
from files import HERE, text_of
from model_files import Progress, say
from signatures import explain, render

ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
# Ray from here on answers nobody without the token.
TOKEN_SINCE = (2, 52)
LOGIN = (
    "pulumi config set --path registry.username NAME and pulumi config set --secret registryPassword PASSWORD, "
    "or `docker login` on the head; then pulumi up"
)


def inspected(image, form):
    """What Docker says of an image; None: it is not there."""
    done = docker("image", "inspect", "--format", form, image)
    if done.returncode == 0:
        return done.stdout.strip()
    if "no such image" in done.stderr.lower():
        return None
    return fail(f"Docker gives no answer about image {image}: {done.stderr.strip()}")


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {}


class BackgroundPull:
    """A pull that nobody has to wait for. It holds the lock for as long as it runs."""

    def __init__(self, folder, reference):
        self.folder, self.reference = folder, reference
        os.makedirs(folder, 0o700, exist_ok=True)

    def lock(self):
        """The lock's file; None: a pull runs."""
        file = open(os.path.join(self.folder, "lock"), "w", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
            return None

    def state(self):
        return read_json(os.path.join(self.folder, "state.json"))

    def start(self):
        """Begins it, or goes on with the one that runs. One of another image is ended."""
        while (free := self.lock()) is None:
            running = self.state()
            if running.get("reference") == self.reference:
                return
            if running.get("pid"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running["pid"], signal.SIGTERM)
            time.sleep(0.2)
        # The former one's, whose process may be somebody else's by now.
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.folder, "state.json"))
        with free, open(os.path.join(self.folder, "log"), "wb") as log:
            argv = [sys.executable, "-B", os.path.join(HERE, "background_pull.py"), self.folder, self.reference]
            subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[free.fileno()]
            )

    def follow(self):
        """Tells how far it is until it ended; bytes and seconds that it took."""
        doing, progress = None, None
        while (ended := self.lock()) is None:
            if (state := self.state()).get("total"):
                now = "pull" if state["done"] < state["total"] else "unpack"
                if now != doing:
                    doing, progress = now, Progress(now, 0, state["done" if now == "pull" else "unpacked"])
                progress.total = state["total"]
                progress.what = f"{doing}: {state['complete']} of {state['layers']} layers"
                progress.at(state["done" if doing == "pull" else "unpacked"])
            time.sleep(0.5)
        ended.close()
        state = self.state()
        if state.get("code") != 0:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                said = "\n".join(log.read().strip().splitlines()[-5:])
            refused = any(word in said.lower() for word in ("unauthorized", "denied", "authentication required", "no basic auth"))
            fail(
                f"{render(explain(said))}{said}\nthe pull of {self.reference} failed: its last lines are above"
                + (f"\n  mend: is it spelled right? If it is private: {LOGIN}" if refused else "")
            )
        return {"bytes": state["done"], "seconds": state["seconds"]}


def bring(reference, keep):
    """Has the image here; bytes and seconds of the pull, None: it was here."""
    if inspected(reference, "{{.Id}}") is not None:
        return None
    if reference.startswith("sha256:"):
        fail(
            f"no image {reference} on the head: build or load it there (`docker build`, `docker load`), and set `image` to the id\n"
            "  that `docker image inspect --format '{{.Id}}' NAME` prints there"
        )
    pull = BackgroundPull(os.path.join(keep, "pull"), reference)
    pull.start()
    return pull.follow()


def require_name(image):
    """Ends the step when nothing but our tag would hold the image: it would go with the deployment, and with any `docker image prune`."""
    names = [json.loads(inspected(image, form) or "null") or [] for form in ("{{json .RepoTags}}", "{{json .RepoDigests}}")]
    if all(name.startswith("dgx-spark-serving:") for name in sum(names, [])):
        fail(f"image {image} has no name of its own, and would be removed with the deployment: docker tag {image} NAME, on the head")


def require_architecture(reference):
    machine = ARCHITECTURES.get(platform.machine(), platform.machine())
    built_for = inspected(reference, "{{.Architecture}}")
    if built_for != machine:
        fail(f"the image is for {built_for}, this machine is {machine}: choose an image that is built for it")


def engine_in(tag, deployment):
    """Versions of what is in the image. Ends the step when the engine or Ray is missing."""
    done = docker(
        *("run", "--rm", "--pull", "never", "--network", "none", "--label", f"dgx-spark-serving.deployment={deployment}"),
        *("--entrypoint", "python3", tag, "-c", text_of("engine_versions.py")),
    )
    if done.returncode != 0:
        fail(f"{done.stderr.strip()}\nimage {tag} can't tell what is in it: it has no usable python3, which vLLM and Ray run in")
    found = json.loads(done.stdout)
    missing = [name for name in ("vllm", "ray") if not found["commands"][name]]
    if missing:
        fail(
            f"image {tag} has no {' and no '.join(missing)} (`{missing[0]} --version` would not be found): use one with vLLM and Ray in it. "
            "vLLM's own images come without Ray from 0.18 on; README.md tells how to build one on the head"
        )
    versions = found["versions"]
    ray = tuple(int(number) for number in re.findall(r"\d+", versions["ray"] or "")[:2])
    if ray and ray < TOKEN_SINCE:
        say(f"warning: Ray {versions['ray']} knows no token: whoever reaches its ports can run programs on the nodes (docs/decisions.md)")
    return versions


def main(reference, tag, keep, deployment):
    pulled = bring(reference, keep)
    require_name(reference)
    require_architecture(reference)
    image = inspected(reference, "{{.Id}}")
    tagged = inspected(tag, "{{.Id}}") == image
    if not tagged:
        done = docker("tag", reference, tag)
        if done.returncode != 0:
            fail(f"the image could not be tagged as {tag}: {done.stderr.strip()}")
    engine = engine_in(tag, deployment)
    print(json.dumps({"changed": pulled is not None or not tagged, "id": image, "engine": engine, "pull": pulled}))


main(*sys.argv[1:])
