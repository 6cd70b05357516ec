const HEARTBEAT_MS = 15_000;

/** Tells the person something, on stderr: stdout belongs to answers. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** Seconds since a moment of `performance.now()`, as "3.2 s" or "2 min 5 s". */
export function elapsed(since: number, now = performance.now()): string {
  const seconds = (now - since) / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** Runs one step and says how long it took; a long one says every 15 s that it still goes on. */
export async function step<T>(title: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const heartbeat = setInterval(() => {
    say(`  ${title} … ${elapsed(start)}`);
  }, HEARTBEAT_MS);
  try {
    const result = await work();
    say(`  ${title}: ${elapsed(start)}`);
    return result;
  } catch (error) {
    say(`  ${title}: failed after ${elapsed(start)}`);
    throw error;
  } finally {
    clearInterval(heartbeat);
  }
}
