import { shellLine } from "./quote";
import type { NodeSettings, Settings } from "./schema";
import { urlHost } from "./ray";

/** How the operator reaches a node: directly, or through another one. */
export interface Route {
  node: NodeSettings;
  /** The node in between; undefined: reached directly. */
  via: NodeSettings | undefined;
}

/** The route to a node of the list. */
export function routeTo(node: NodeSettings, nodes: readonly NodeSettings[]): Route {
  return { node, via: nodes.find((other) => other.name === node.via) };
}

/** A hop as error messages name it. */
export function describeRoute({ node, via }: Route): string {
  const hop = (each: NodeSettings) => `${each.user}@${urlHost(each.host)}:${each.port}`;
  return via === undefined ? hop(node) : `${hop(node)} through ${via.name} (${hop(via)})`;
}

/**
 * Options of the `ssh` program for a node.
 * No file is needed beside the private key: the host key comes from the settings, on every hop.
 *
 * @param socket path at which a node reached directly shares its connection with those behind it; `%C` tells such nodes
 *   apart. Default: every connection is one of its own
 */
export function sshOptions({ node, via }: Route, ssh: Settings["ssh"], socket?: string): string[] {
  const shared = socket === undefined ? [] : ["-o", `ControlPath=${socket}`];
  if (via === undefined) return [...hopOptions(node, ssh), ...shared];
  const options = hopOptions(node, ssh);
  const jump = [
    "ssh",
    ...hopOptions(via, ssh),
    ...shared,
    "-W",
    `${urlHost(node.host)}:${node.port}`,
    "-p",
    String(via.port),
    "-l",
    via.user,
    "--",
    via.host,
  ];
  // ssh expands % in this option before it hands it to a shell.
  return [...options, "-o", `ProxyCommand=${shellLine(jump).replaceAll("%", "%%")}`];
}

function hopOptions(node: NodeSettings, ssh: Settings["ssh"]): string[] {
  // Without a key file: the agent. ssh itself expands a `~`: the same options on every operator's machine change nothing.
  const { privateKeyPath } = ssh;
  const [keyType = ""] = node.hostKey.split(" ");
  const options = {
    BatchMode: "yes",
    ConnectTimeout: ssh.connectTimeoutSeconds,
    ServerAliveInterval: 15,
    StrictHostKeyChecking: "yes",
    UserKnownHostsFile: "/dev/null",
    GlobalKnownHostsFile: "/dev/null",
    // %H is the name that ssh looks for; echo gives it the one key that we trust.
    KnownHostsCommand: `/bin/echo %H ${node.hostKey}`,
    HostKeyAlgorithms: keyType === "ssh-rsa" ? "rsa-sha2-512,rsa-sha2-256" : keyType,
    ...(privateKeyPath !== undefined && { IdentitiesOnly: "yes" }),
  };
  return [
    // A person's own ~/.ssh/config may share connections, forward things or run commands.
    ...["-F", "none"],
    ...(privateKeyPath === undefined ? [] : ["-i", privateKeyPath]),
    ...Object.entries(options).flatMap(([name, value]) => ["-o", `${name}=${value}`]),
  ];
}
