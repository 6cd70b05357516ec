import { cpSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { say, step } from "../progress";
import { LabError, run } from "../run";
import { pack } from "./pack";
import { storeImage } from "./registry-storage";
import { trim } from "./trim";

const SUITE = "bookworm";
const SUITE_PACKAGES = ["ca-certificates", "curl", "iproute2", "libnuma1", "procps", "python3", "python3-venv"];
const PYTHON = "3.11"; // of the suite
const VLLM_VERSION = "0.32.0+cpu";
const ENVIRONMENT = "opt/venv";

/** The name of the image in the lab's registry. */
export const IMAGE_REPOSITORY = "vllm-lab";

/** A sparse file: the tree is made on it, since some machines take a minute to delete ten thousands of files. */
const DISK = "16G";

/**
 * Builds the image and the model into `home`: `registry`, the storage of a docker-registry; `model`; and `image.json` with
 * the image's digest. Built under a temporary name and moved into place: a killed build leaves nothing that looks finished.
 * Runs in a mount namespace of its own (see the end of this file).
 */
async function build(home: string): Promise<void> {
  const work = `${home}.building`;
  const log = `${home}.log`;
  rmSync(work, { recursive: true, force: true });
  const disk = join(work, "disk");
  const result = join(work, "result");
  mkdirSync(disk, { recursive: true });
  mkdirSync(result);
  writeFileSync(log, "");
  say(`Building the lab's image, once for this machine (log: ${log})`);
  await mountDisk(join(work, "disk.img"), disk);

  const root = join(disk, "root");
  const environment = join(root, ENVIRONMENT);
  const packages = join(environment, `lib/python${PYTHON}/site-packages`);
  const inImage = (...argv: string[]): Promise<string> => run([join(__dirname, "in-image.sh"), root, ...argv], { log });
  await Promise.all([
    step("Debian base", () => debianBase(root, log)),
    step("Python packages, downloaded", () => downloadWheels(disk, log)),
  ]);
  await step("Python packages, installed", async () => {
    renameSync(join(disk, "wheels"), join(root, "wheels"));
    cpSync(join(__dirname, "requirements.txt"), join(root, "wheels/requirements.txt"));
    await inImage("python3", "-m", "venv", `/${ENVIRONMENT}`);
    const offline = ["--no-index", "--find-links", "/wheels", "--no-deps", "--no-compile", "--no-cache-dir"];
    await inImage("pip", "install", ...offline, "-r", "/wheels/requirements.txt");
    rmSync(join(root, "wheels"), { recursive: true });
  });
  await step("Stand-ins for NVIDIA's libraries, vLLM platform", async () => {
    for (const script of ["nvidia_stubs.py", "torch_cuda_stub.py"])
      await run(["/usr/bin/python3", "-B", join(__dirname, script), join(packages, "torch/lib")], { log });
    addPlatform(packages);
  });
  await step("Trimming", () => trim(root, environment, packages, log));
  await step("Trial imports, model", async () => {
    mkdirSync(join(root, "lab"));
    for (const script of ["smoke.py", "model.py"]) cpSync(join(__dirname, script), join(root, "lab", script));
    await inImage("python3", "/lab/smoke.py");
    await inImage("python3", "/lab/model.py", "/lab/model");
    cpSync(join(root, "lab/model"), join(result, "model"), { recursive: true });
    rmSync(join(root, "lab"), { recursive: true });
  });
  await step("Packing", async () => {
    const layer = await pack(root, join(work, "layer.tar.gz"));
    const digest = storeImage(join(result, "registry"), IMAGE_REPOSITORY, layer, {
      Env: [`PATH=/${ENVIRONMENT}/bin:/usr/sbin:/usr/bin:/sbin:/bin`, "LANG=C.UTF-8"],
      Cmd: ["/bin/bash"],
      Labels: { "org.opencontainers.image.title": IMAGE_REPOSITORY },
    });
    writeFileSync(join(result, "image.json"), JSON.stringify({ digest, layerBytes: layer.size }));
  });
  await run(["umount", "--lazy", disk]);
  renameSync(result, home);
  rmSync(work, { recursive: true });
}

async function mountDisk(file: string, directory: string): Promise<void> {
  await run(["truncate", `--size=${DISK}`, file]);
  await run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1", "-O", "^has_journal", file]);
  await run(["mount", "-o", "loop,noatime", file, directory]);
}

async function debianBase(root: string, log: string): Promise<void> {
  const include = `--include=${SUITE_PACKAGES.join(",")}`;
  await run(["debootstrap", "--variant=minbase", include, SUITE, root], { log });
}

/** Downloads on this machine, with its own pip settings, what the image's Python will install. */
async function downloadWheels(work: string, log: string): Promise<void> {
  const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
  const newest = 36; // the suite's glibc is 2.36
  const platforms = Array.from({ length: newest - 4 }, (_, i) => `manylinux_2_${newest - i}_${machine}`);
  const old = ["manylinux2014", "manylinux2010", "manylinux1"].map((name) => `${name}_${machine}`);
  const pip = join(work, "pip");
  await run(["/usr/bin/python3", "-m", "venv", pip], { log });
  await run(
    [
      join(pip, "bin/pip"),
      ...["download", "--no-deps", "--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"],
      ...[...platforms, ...old].flatMap((platform) => ["--platform", platform]),
      ...["--progress-bar", "off", "-r", join(__dirname, "requirements.txt"), "-d", join(work, "wheels")],
    ],
    { log },
  );
  rmSync(pip, { recursive: true });
}

/** Installs the platform plugin, and names vLLM's distribution "vllm", which the `vllm` command looks itself up by. */
function addPlatform(packages: string): void {
  const plugin = "vllm_lab_platform";
  cpSync(join(__dirname, plugin), join(packages, plugin), { recursive: true });
  const distributions = [
    { directory: `vllm-${VLLM_VERSION}.dist-info`, name: "vllm", version: VLLM_VERSION },
    { directory: `${plugin}-1.0.dist-info`, name: "vllm-lab-platform", version: "1.0" },
  ];
  for (const { directory, name, version } of distributions) {
    mkdirSync(join(packages, directory));
    const metadata = `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`;
    writeFileSync(join(packages, directory, "METADATA"), metadata);
  }
  const entryPoints = "entry_points.txt";
  renameSync(join(packages, plugin, entryPoints), join(packages, `${plugin}-1.0.dist-info`, entryPoints));
}

// A program of its own, started by ../artifacts.ts: build.ts HOME
const [, , home] = process.argv;
if (require.main === module && home !== undefined) {
  build(home).catch((error: unknown) => {
    say(error instanceof LabError ? error.message : String(error instanceof Error ? error.stack : error));
    process.exitCode = 1;
  });
}
