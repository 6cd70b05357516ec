/** Whether two IPv4 networks, "10.1.230.0/24" or a single address, share an address. "default" shares none. */
export function overlap(left: string, right: string): boolean {
  const [a, b] = [parse(left), parse(right)];
  if (!a || !b) return false;
  const size = 2 ** (32 - Math.min(a.prefix, b.prefix));
  return Math.floor(a.address / size) === Math.floor(b.address / size);
}

function parse(text: string): { address: number; prefix: number } | undefined {
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)(?:\/(\d+))?$/.exec(text);
  if (!match) return undefined;
  const address = match.slice(1, 5).reduce((sum, part) => sum * 256 + Number(part), 0);
  return { address, prefix: Number(match[5] ?? 32) };
}
