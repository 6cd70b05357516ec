import { request, type RequestOptions } from "node:http";

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

const ANSWER_MS = 2000;

/** Whether an HTTP request is answered with status 200, within two seconds. */
export async function answersOk(options: RequestOptions): Promise<boolean> {
  return await new Promise((resolve) => {
    const call = request({ ...options, timeout: ANSWER_MS });
    call.on("response", (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    call.on("timeout", () => call.destroy());
    call.on("error", () => {
      resolve(false);
    });
    call.end();
  });
}
