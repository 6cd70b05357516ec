import {
  chmodSync,
  cpSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";

import { hostKey, operatorKey } from "./keys";
import { etcFiles, USER_ID } from "./node-files";
import { nodeDirectory } from "./paths";
import { run } from "./run";
import { type Node, USER } from "./topology";

/** What a node takes over from this machine's /etc: named one by one, so that no secret of it is in a node. */
const SHARED_ETC = [
  ...["alternatives", "bash.bashrc", "debian_version", "default", "host.conf", "inputrc", "ld.so.cache", "ld.so.conf"],
  ...["ld.so.conf.d", "localtime", "login.defs", "mime.types", "nsswitch.conf", "os-release", "pam.conf", "pam.d"],
  ...[
    "profile",
    "protocols",
    "python3",
    "python3.11",
    "security",
    "services",
    "shells",
    "skel",
    "terminfo",
    "timezone",
  ],
];

/** Directories that a node begins with, and their modes. */
const DIRECTORIES = new Map([
  ...["usr", "proc", "sys", "dev", "run", "mnt", "var/log", "var/lib/docker", "home"].map((path): [string, number] => [
    path,
    0o755,
  ]),
  ["tmp", 0o1777],
  ["var/tmp", 0o1777],
  ["root", 0o700],
]);

const DOCKER_DISK = "64G";

/** Where the program expects the model on every node. */
export const MODEL_PATH = `/home/${USER}/models/tiny-qwen3-moe`;

/** Makes a node's disk, or brings it up to date: what the node itself wrote stays. `model` is copied when absent. */
export async function prepareDisk(node: Node, model: string): Promise<void> {
  const root = join(nodeDirectory(node.name), "root");
  mkdirSync(join(nodeDirectory(node.name), "usr-local"), { recursive: true });
  for (const [path, mode] of DIRECTORIES) {
    mkdirSync(join(root, path), { recursive: true });
    chmodSync(join(root, path), mode);
  }
  for (const name of ["bin", "sbin", "lib", "lib32", "lib64"]) {
    if (existsSync(`/usr/${name}`)) link(`usr/${name}`, join(root, name));
  }
  link("/run", join(root, "var/run"));
  makeWhole(join(root, "etc"), copySharedEtc);
  const accounts = { passwd: readFileSync("/etc/passwd", "utf8"), group: readFileSync("/etc/group", "utf8") };
  const hostKeys = {
    ecdsa: (await hostKey(node.name, "ecdsa")).privateText,
    ed25519: (await hostKey(node.name, "ed25519")).privateText,
  };
  for (const [path, { text, mode }] of etcFiles(node, accounts, hostKeys)) {
    write(join(root, "etc", path), text, mode);
  }
  write(join(root, "init"), readFileSync(join(__dirname, "node/init.sh"), "utf8"), 0o755);
  await makeDockerDisk(join(nodeDirectory(node.name), "docker.img"));
  const { publicText } = await operatorKey();
  makeWhole(join(root, "home", USER), (draft) => {
    fillHome(draft, publicText, model);
  });
}

/** dockerd's disk is one sparse file: images are ten thousands of files, which some machines take a minute to delete. */
async function makeDockerDisk(file: string): Promise<void> {
  if (existsSync(file)) return;
  const draft = `${file}.draft`;
  rmSync(draft, { force: true });
  await run(["truncate", `--size=${DOCKER_DISK}`, draft]);
  await run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", draft]);
  renameSync(draft, file);
}

/** Makes a directory that is missing, whole under another name first: an interrupted run does not leave half of it. */
function makeWhole(directory: string, fill: (draft: string) => void): void {
  if (existsSync(directory)) return;
  const draft = `${directory}.draft`;
  rmSync(draft, { recursive: true, force: true });
  mkdirSync(draft, { recursive: true });
  fill(draft);
  renameSync(draft, directory);
}

function copySharedEtc(etc: string): void {
  for (const name of SHARED_ETC) {
    if (existsSync(join("/etc", name))) {
      cpSync(join("/etc", name), join(etc, name), { recursive: true, verbatimSymlinks: true });
    }
  }
}

function fillHome(home: string, publicKey: string, model: string): void {
  cpSync("/etc/skel", home, { recursive: true });
  write(join(home, ".ssh/authorized_keys"), `${publicKey}\n`, 0o600);
  chmodSync(join(home, ".ssh"), 0o700);
  cpSync(model, join(home, relative(`/home/${USER}`, MODEL_PATH)), { recursive: true });
  for (const path of ["", ...readdirSync(home, { recursive: true, encoding: "utf8" })]) {
    lchownSync(join(home, path), USER_ID, USER_ID);
  }
}

function link(target: string, path: string): void {
  rmSync(path, { force: true });
  symlinkSync(target, path);
}

function write(path: string, text: string, mode: number): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  chmodSync(path, mode);
}
