/** Asks until the answer is yes; false when that takes longer than `timeout` milliseconds. */
export async function until(
  question: () => Promise<boolean> | boolean,
  timeout: number,
  interval = 50,
): Promise<boolean> {
  const end = performance.now() + timeout;
  while (!(await question())) {
    if (performance.now() > end) return false;
    await new Promise((resolve) => setTimeout(resolve, interval));
  }
  return true;
}
