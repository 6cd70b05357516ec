import { MANAGEMENT, type Node, PREFIX, REGISTRY, USER } from "./topology";

/** aurora's user and group number on every node. */
export const USER_ID = 1000;
const FIRST_PERSON = 1000;
const NOBODY = 65534;

/** This machine's account files, which the nodes' are made from. */
export interface Accounts {
  passwd: string;
  group: string;
}

/** A file of a node: its text and mode. */
export interface NodeFile {
  text: string;
  mode: number;
}

/** The files of a node's /etc that differ from this machine's, by path. `hostKeys` are its private SSH host keys. */
export function etcFiles(
  node: Node,
  accounts: Accounts,
  hostKeys: Record<"ecdsa" | "ed25519", string>,
): Map<string, NodeFile> {
  const plain = (text: string): NodeFile => ({ text, mode: 0o644 });
  const secret = (text: string): NodeFile => ({ text, mode: 0o600 });
  const people = accountFiles(accounts);
  return new Map([
    ["passwd", plain(people.passwd)],
    ["group", plain(people.group)],
    ["shadow", secret(people.shadow)],
    ["gshadow", secret("")],
    ["hostname", plain(`${node.name}\n`)],
    // As Ubuntu, and so DGX OS, writes it: the trap for whatever looks its own host name up.
    ["hosts", plain(`127.0.0.1 localhost\n127.0.1.1 ${node.name}\n`)],
    ["resolv.conf", plain("")],
    ["environment", plain('PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n')],
    ["ssh/sshd_config", plain(sshdConfig)],
    ["ssh/ssh_host_ecdsa_key", secret(hostKeys.ecdsa)],
    ["ssh/ssh_host_ed25519_key", secret(hostKeys.ed25519)],
    ["docker/daemon.json", plain(`${JSON.stringify(dockerConfig(node), null, 2)}\n`)],
  ]);
}

/** This machine's system accounts, all locked, with aurora as the only person. */
export function accountFiles(accounts: Accounts): { passwd: string; group: string; shadow: string } {
  const isSystem = (line: string): boolean => {
    const [name, , id] = line.split(":");
    return name !== "" && name !== USER && (Number(id) < FIRST_PERSON || Number(id) === NOBODY);
  };
  const system = (text: string): string[] => text.split("\n").filter((line) => line.includes(":") && isSystem(line));
  const users = [...system(accounts.passwd), `${USER}:x:${USER_ID}:${USER_ID}::/home/${USER}:/bin/bash`];
  const groups = system(accounts.group).map((line) => {
    const [name = "", , id = ""] = line.split(":");
    return `${name}:x:${id}:${name === "docker" ? USER : ""}`;
  });
  return {
    passwd: lines(users),
    group: lines([...groups, `${USER}:x:${USER_ID}:`]),
    shadow: lines(users.map((line) => `${line.split(":")[0] ?? ""}:*:20000:0:99999:7:::`)),
  };
}

function lines(list: string[]): string {
  return `${list.join("\n")}\n`;
}

/** Debian's own, without AcceptEnv: nobody may count on it. */
const sshdConfig = `HostKey /etc/ssh/ssh_host_ecdsa_key
HostKey /etc/ssh/ssh_host_ed25519_key
KbdInteractiveAuthentication no
UsePAM yes
X11Forwarding no
PrintMotd no
Subsystem sftp /usr/lib/openssh/sftp-server
`;

/** dockerd's settings: no bridge network, since the kernel of a lab machine may lack NAT; containers share the host's. */
function dockerConfig(node: Node): Record<string, unknown> {
  return {
    bridge: "none",
    iptables: false,
    "ip-masq": false,
    "storage-driver": "overlay2",
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
    // One parent for all, so that none is left behind.
    "cgroup-parent": `/${PREFIX}/${node.name}`,
    "insecure-registries": [REGISTRY.host],
    "shutdown-timeout": 10,
  };
}

/** A node as the program's setting `nodes` wants it; `hostKey` is "ecdsa-sha2-nistp256 AAAA…". */
export function nodeSetting(node: Node, head: Node, hostKey: string): Record<string, unknown> {
  return {
    name: node.name,
    host: node.host,
    ...(node.isHead && { port: 22 }),
    user: USER,
    hostKey,
    ...(!node.isHead && { via: head.name }),
    fabric: { interface: node.fabric.interface, address: node.fabric.address },
  };
}

/** OpenSSH's client configuration for the lab: every node by name, workers by the head, host keys checked. */
export function sshConfig(nodes: Node[], identity: string, knownHosts: string): string {
  const hosts = nodes.map((node) =>
    lines([
      `Host ${node.name}`,
      `  HostName ${node.host}`,
      ...(node.isHead ? [] : [`  ProxyJump ${nodes[0]?.name ?? MANAGEMENT.address}`]),
    ]),
  );
  const common = lines([
    "Host *",
    `  User ${USER}`,
    `  IdentityFile ${identity}`,
    "  IdentitiesOnly yes",
    `  UserKnownHostsFile ${knownHosts}`,
    "  GlobalKnownHostsFile /dev/null",
    "  StrictHostKeyChecking yes",
    "  LogLevel ERROR",
  ]);
  return hosts.join("") + common;
}
