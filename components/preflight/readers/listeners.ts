/** A TCP port that something listens on. */
export interface Listener {
  /** Local address; `*`, `0.0.0.0` and `::` are all of them. */
  address: string;
  port: number;
  /** Who listens, as far as it can be told without root: a process, a container, a service, a user. */
  owner: string;
  /** Id of the container it runs in; empty: in none; null: not told. */
  container: string | null;
}

/**
 * Reads `ss -Hltnpe --cgroup`. Without root it names the processes of one's own user alone; of others it tells the
 * control group (a service or a container) and the user's number, which is left out for root.
 */
export function readListeners(text: string): Listener[] {
  return text.split("\n").flatMap((line) => {
    const [, , , local = "", peer = ""] = line.trim().split(/\s+/);
    const [, address = "", port = ""] = /^(.*):(\d{1,5})$/.exec(local) ?? [];
    // Without the peer's column, `…:*`, the line was cut, and maybe the port.
    if (!line.startsWith("LISTEN") || address === "" || !peer.endsWith(":*")) return [];
    // `[fe80::1]%eth0`, `127.0.0.53%lo`
    const plain = address.replace(/%.*$/, "").replace(/^\[(.*)\]$/, "$1");
    return [{ address: plain, port: Number(port), owner: ownerOf(line), container: containerOf(line) }];
  });
}

/** By the control group, also where the container shares the host's network and processes. */
function containerOf(line: string): string | null {
  const [, group] = /\bcgroup:(\/\S*)/.exec(line) ?? [];
  return group === undefined ? null : (/[0-9a-f]{64}/.exec(group)?.[0] ?? "");
}

function ownerOf(line: string): string {
  const [, name, pid] = /users:\(\("([^"]*)",pid=(\d+)/.exec(line) ?? [];
  if (name !== undefined && pid !== undefined) return `${name} (pid ${pid})`;
  const container = containerOf(line);
  if (container) return `container ${container.slice(0, 12)}`;
  const [, unit] = /cgroup:\S*\/([^/\s]+\.service)/.exec(line) ?? [];
  if (unit !== undefined) return unit;
  const [, user] = /\buid:(\d+)/.exec(line) ?? [];
  if (user !== undefined) return `a process of user ${user}`;
  // The socket's number follows where the user's would be.
  return /\bino:\d/.test(line) ? "a process of root" : "a process that is not known";
}
