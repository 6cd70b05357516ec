import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { stringify } from "yaml";

import { STATE } from "./paths";
import { kill, labProcesses, REGISTRY_CONFIG, startDetached } from "./processes";
import { lastLines, LabError } from "./run";
import { OPERATOR, REGISTRY } from "./topology";
import { answersOk, until } from "./wait";

/** Serves an image storage on the operator's side of the head; left alone when it runs already with the same storage. */
export async function startRegistry(storage: string, repository: string, digest: string): Promise<void> {
  if (await serves(repository, digest)) return;
  await stopRegistry();
  writeFileSync(REGISTRY_CONFIG, registryConfig(storage));
  const log = join(STATE, "registry.log");
  startDetached(["docker-registry", "serve", REGISTRY_CONFIG], log);
  if (!(await until(() => serves(repository, digest), 10_000))) {
    throw new LabError(`The registry does not serve ${repository}@${digest} at ${REGISTRY.host}:\n${lastLines(log)}`);
  }
}

/** Ends the registry. */
export async function stopRegistry(): Promise<void> {
  await kill(registryPids());
}

/** The registry's processes. */
export function registryPids(): number[] {
  return labProcesses()
    .filter(({ owner }) => owner === "registry")
    .map(({ pid }) => pid);
}

/** docker-registry's settings: no login, and nothing can be pushed, since the storage is a cache. */
function registryConfig(storage: string): string {
  return stringify({
    version: "0.1",
    log: { level: "warn", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: storage }, maintenance: { readonly: { enabled: true } } },
    http: { addr: REGISTRY.host },
  });
}

/** Whether the registry has the image. */
async function serves(repository: string, digest: string): Promise<boolean> {
  const path = `/v2/${repository}/manifests/${digest}`;
  const headers = { Accept: "application/vnd.docker.distribution.manifest.v2+json" };
  return await answersOk({ method: "HEAD", host: OPERATOR.address, port: REGISTRY.port, path, headers });
}
