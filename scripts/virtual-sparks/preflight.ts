import { existsSync, readFileSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { z } from "zod";

import { overlap } from "./cidr";
import { knownNodes } from "./hosts";
import { ROUTE_PROTOCOL } from "./network";
import { CACHE, STATE } from "./paths";
import { registryPids } from "./registry";
import { attempt, LabError, run } from "./run";
import { FABRIC, type Node, OPERATOR, PREFIX, REGISTRY } from "./topology";

const GIB = 2 ** 30;
/** What serving takes: the head's containers 2 GB, a worker's 0.8 GB, dockerd and page cache beside them. */
const HEAD_MEMORY = 3 * GIB;
const WORKER_MEMORY = 1.5 * GIB;
/** A node's image, and its container's own files. */
const NODE_DISK = 3 * GIB;
/** The build of the image: packages, tree and packed layer. */
const BUILD_DISK = 8 * GIB;

/** Throws with every reason why a lab of these nodes can't run here, and what to do about each. */
export async function checkMachine(nodes: Node[], hasImage: boolean): Promise<void> {
  const added = Math.max(0, nodes.length - knownNodes().length);
  const problems = [
    ...(await addressProblems()),
    ...(await portProblems()),
    ...(added > 0
      ? [...memoryProblems(added), ...diskProblems(STATE, added * NODE_DISK), ...(await namespaceProblems())]
      : []),
    ...(hasImage ? [] : diskProblems(CACHE, BUILD_DISK)),
  ];
  if (problems.length > 0) throw new LabError(`The lab can't run here:\n${problems.map((p) => `  - ${p}`).join("\n")}`);
}

const routesSchema = z.array(
  z.object({ dst: z.string(), dev: z.string().optional(), protocol: z.string().optional() }),
);

/** The lab's networks have to be free: this machine must not have them elsewhere. */
async function addressProblems(): Promise<string[]> {
  const routes = routesSchema.parse(JSON.parse(await run(["ip", "-4", "-j", "route", "show", "table", "all"])));
  const foreign = routes.filter(({ dev, protocol }) => dev !== OPERATOR.interface && protocol !== ROUTE_PROTOCOL);
  const taken = [OPERATOR.network, FABRIC.network].flatMap((network) => {
    const route = foreign.find(({ dst }) => overlap(dst, network));
    if (!route) return [];
    const where = route.dev === undefined ? "" : ` by ${route.dev}`;
    return [
      `network ${network} is in use on this machine: a route to ${route.dst}${where}; remove it or use another machine`,
    ];
  });
  const { stdout, code } = await attempt(["ip", "-j", "link", "show", "dev", OPERATOR.interface]);
  if (code === 0 && !stdout.includes(PREFIX) && existsSync(`/sys/class/net/${OPERATOR.interface}`)) {
    taken.push(
      `interface ${OPERATOR.interface} is there and not the lab's; remove it: ip link del ${OPERATOR.interface}`,
    );
  }
  return taken;
}

/** The registry's port has to be free on its address. */
async function portProblems(): Promise<string[]> {
  const own = registryPids();
  const listeners = await run(["ss", "-Hltnp", `sport = :${REGISTRY.port}`]);
  return listeners
    .split("\n")
    .filter((line) => line.trim() !== "" && !own.some((pid) => line.includes(`pid=${pid},`)))
    .flatMap((line) => {
      const address = line.trim().split(/\s+/)[3] ?? "";
      if (!/^(0\.0\.0\.0|\*|\[::\]|10\.1\.230\.1):/.test(address)) return [];
      const process = /users:\(\("([^"]+)",pid=(\d+)/.exec(line);
      const holder = process ? `${process[1] ?? ""} (process ${process[2] ?? ""})` : "another process";
      return [`port ${REGISTRY.port} is taken: ${holder} listens on ${address}; end it`];
    });
}

function memoryProblems(added: number): string[] {
  const kibibytes = Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1] ?? 0);
  const needed = HEAD_MEMORY + (added - 1) * WORKER_MEMORY;
  if (kibibytes * 1024 >= needed) return [];
  return [
    `${gib(kibibytes * 1024)} of memory are free and ${gib(needed)} needed; end other programs or take fewer --nodes`,
  ];
}

function diskProblems(directory: string, needed: number): string[] {
  let existing = directory;
  while (!existsSync(existing)) existing = dirname(existing);
  const { bavail, bsize } = statfsSync(existing);
  if (bavail * bsize >= needed) return [];
  return [`${gib(bavail * bsize)} of disk are free at ${directory} and ${gib(needed)} needed; make room`];
}

/** What a node's boot needs, tried in a moment. */
const TRIAL = `mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir upper work over disk &&
mount -t overlay -o lowerdir=/usr,upperdir=upper,workdir=work overlay over &&
truncate --size=16M image && mkfs.ext4 -q -F image && mount -o loop image disk && ip link add type bridge`;

/** Whether this machine lets root make what a node is made of. */
async function namespaceProblems(): Promise<string[]> {
  const namespaces = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"];
  const { code, stderr } = await attempt([...namespaces, "sh", "-c", TRIAL]);
  if (code === 0) return [];
  const problem = "namespaces, overlay or loop mounts, or bridges are refused";
  return [
    `${problem}: ${stderr.trim()}; use a machine whose root may do all, as a virtual machine's (in a container: --privileged)`,
  ];
}

function gib(bytes: number): string {
  return `${(bytes / GIB).toFixed(1)} GiB`;
}
