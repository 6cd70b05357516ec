import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { sshConfig } from "./node-files";
import { nodeDirectory, STATE } from "./paths";
import { run } from "./run";
import type { Node } from "./topology";

type KeyType = "ecdsa" | "ed25519";

/** A key pair of the lab. */
export interface KeyPair {
  /** Path of the private key. */
  path: string;
  privateText: string;
  /** "ecdsa-sha2-nistp256 AAAA…", without comment. */
  publicText: string;
}

/** The operator's SSH client configuration for the lab. */
export const SSH_CONFIG = join(STATE, "ssh_config");

/** The key that the operator logs in with; made on first use. */
export async function operatorKey(): Promise<KeyPair> {
  return await keyPair(join(STATE, "id_ed25519"), "ed25519");
}

/** A node's host key; made on first use, kept over reboots. A real Spark has several, of which clients choose by kind. */
export async function hostKey(node: string, type: KeyType): Promise<KeyPair> {
  return await keyPair(join(nodeDirectory(node), `host_key_${type}`), type);
}

/** Writes the client configuration and the known hosts that `lab ssh` uses. */
export async function writeSshConfig(nodes: Node[]): Promise<void> {
  const knownHosts = join(STATE, "known_hosts");
  const keys = await Promise.all(
    nodes.map(async (node) => `${node.host} ${(await hostKey(node.name, "ecdsa")).publicText}\n`),
  );
  writeFileSync(knownHosts, keys.join(""));
  writeFileSync(SSH_CONFIG, sshConfig(nodes, (await operatorKey()).path, knownHosts));
}

async function keyPair(path: string, type: KeyType): Promise<KeyPair> {
  if (!existsSync(path)) {
    mkdirSync(dirname(path), { recursive: true });
    const draft = `${path}.draft`;
    rmSync(draft, { force: true });
    await run(["ssh-keygen", "-q", "-t", type, "-N", "", "-C", "dgx-spark-lab", "-f", draft]);
    renameSync(`${draft}.pub`, `${path}.pub`);
    renameSync(draft, path); // last: its presence says that the pair is whole
  }
  const [algorithm = "", key = ""] = readFileSync(`${path}.pub`, "utf8").split(" ");
  return { path, privateText: readFileSync(path, "utf8"), publicText: `${algorithm} ${key.trim()}` };
}
