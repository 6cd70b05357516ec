import * as net from "node:net";
import { containerName, localTag } from "../../container";
import { rayPorts } from "../../ray";
import type { NodeSettings, Settings } from "../../schema";
import type { Docker, NodeFacts } from "../facts";
import type { NodeProbe } from "../probe";
import type { Listener } from "../readers/listeners";
import { gibibytes, problem, type Problem } from "../problem";

/** Whether Docker works, has room, and nothing of others is in the way. */
export function checkDocker(probes: readonly NodeProbe[], settings: Settings, deployment: string): Problem[] {
  return probes.flatMap(({ node, facts }, index) =>
    facts === null
      ? []
      : [
          ...checkDaemon(node, facts, settings),
          ...checkImageDisk(node.name, facts, settings, deployment),
          ...checkContainers(node.name, facts, deployment),
          ...checkPorts(node, facts, index === 0, settings, deployment),
        ],
  );
}

function checkDaemon({ name, user }: NodeSettings, { docker }: NodeFacts, { accelerator }: Settings): Problem[] {
  switch (docker.failure) {
    case "missing":
      return [problem("docker-missing", name, { found: "no program `docker`", expected: "Docker" })];
    case "denied":
      return [
        problem("docker-denied", name, {
          found: withComplaint(`${user} may not use Docker`, docker),
          expected: `${user} in the group docker`,
          mend: `sudo usermod -aG docker ${user}, on ${name}`,
        }),
      ];
    case "down":
      return [
        problem("docker-down", name, {
          found: withComplaint("the daemon does not answer", docker),
          expected: "a running daemon",
        }),
      ];
    case null:
      return accelerator === "gb10" && docker.hasNvidiaRuntime === false
        ? [problem("docker-no-gpu", name, { found: "no runtime `nvidia`", expected: "NVIDIA's container runtime" })]
        : [];
  }
}

function withComplaint(found: string, { complaint }: Docker): string {
  return complaint === null ? found : `${found}: ${complaint}`;
}

/** Room that the image takes while it is unpacked, bytes. */
export function imageBytes({ preflight }: Settings): number {
  return preflight.imageGB * 1e9;
}

function checkImageDisk(node: string, facts: NodeFacts, settings: Settings, deployment: string): Problem[] {
  const free = facts.imageDisk?.freeBytes ?? null;
  const needed = imageBytes(settings);
  const names = [settings.image, localTag(deployment, settings.image)];
  const isThere = facts.images === null || facts.images.some((name) => names.includes(name));
  if (free === null || free >= needed || isThere) return [];
  const found = `${gibibytes(free)} free at ${facts.imageDisk?.path ?? ""}`;
  return [problem("disk-short", node, { found, expected: `${gibibytes(needed)} for the image` })];
}

function checkContainers(node: string, facts: NodeFacts, deployment: string): Problem[] {
  const names = (["ray", "server"] as const).map((role) => containerName(deployment, role));
  return (facts.containers ?? []).flatMap(({ name, deployment: owner, running }) => {
    if (owner === deployment) {
      const expected = "one that runs, as `pulumi up` made it";
      return running ? [] : [problem("container-stopped", node, { found: `container ${name} does not run`, expected })];
    }
    if (names.includes(name)) {
      const found = `container ${name} is ${owner === null ? "not of this program" : `of deployment ${owner}`}`;
      return [
        problem("container-foreign", node, {
          found,
          expected: `none of that name, or one of deployment ${deployment}`,
          mend: `docker rename ${name} OTHER, or docker rm -f ${name}, on ${node}`,
        }),
      ];
    }
    if (owner === null || !running) return [];
    const found = `container ${name} of deployment ${owner} runs`;
    return [problem("deployment-in-the-way", node, { found, expected: `deployment ${deployment} alone` })];
  });
}

/** A port that the deployment listens on. */
interface Port {
  port: number;
  purpose: string;
  role: "ray" | "server";
}

function checkPorts(
  { name }: NodeSettings,
  facts: NodeFacts,
  isHead: boolean,
  { server, nodes: [head] }: Settings,
  deployment: string,
): Problem[] {
  const everywhere = ["*", "0.0.0.0", "::"];
  const ports: Port[] = [
    ...rayPorts(isHead).map((port): Port => ({ port, purpose: "Ray", role: "ray" })),
    ...(isHead ? [{ port: server.port, purpose: "the OpenAI API (server.port)", role: "server" } as const] : []),
  ];
  // Of a running container of ours the ports that it listens on are its own; whether it is well is not asked here. What is not
  // known does not count against it: where the containers are not, any of them may be ours.
  const isOurs = (role: Port["role"], { container }: Listener) => {
    if (facts.containers === null) return Boolean(container);
    const ours = facts.containers.find(
      (each) => each.running && each.deployment === deployment && each.name === containerName(deployment, role),
    );
    return ours !== undefined && (container === null || container === ours.id);
  };
  return ports.flatMap(({ port, purpose, role }) => {
    // Ray listens on every address, whatever it is told; the server on every one of IPv4, and of IPv6 where the head is
    // reached by that.
    const wanted = (address: string) =>
      role === "ray" || everywhere.includes(address) || !net.isIPv6(address) || net.isIPv6(head.host);
    const taken = facts.listeners.find((each) => each.port === port && wanted(each.address) && !isOurs(role, each));
    if (taken === undefined) return [];
    const container = facts.containers?.find(({ id }) => id === taken.container);
    const expected = `free for ${purpose}`;
    if (container?.deployment === deployment && !container.running) {
      // Docker was killed, and does not know yet, or no more, what it had started.
      const found = `port ${port} is held by processes of container ${container.name}, which Docker takes for stopped`;
      const mend = `Run it again in a minute; if they are still there, \`docker restart ${container.name}\`, or restart the Spark.`;
      return [problem("port-taken", name, { found, expected, mend })];
    }
    const owner = container === undefined ? taken.owner : `container ${container.name}`;
    const found = `port ${port} is taken by ${owner}, on ${taken.address}`;
    const mend = role === "ray" ? { mend: "End the service: the ports of Ray are fixed." } : {};
    return [problem("port-taken", name, { found, expected, ...mend })];
  });
}
