import { createServer, connect } from "node:net";

import { LabError } from "./run";

// An abstract socket: the kernel drops it with its process, however that ends, and no file is left.
const ADDRESS = "\0dgx-spark-lab";

/** Makes sure that only one command changes the lab at a time: holds the lock until this process ends. */
export async function lock(): Promise<void> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end(`${process.argv.slice(2).join(" ")} (process ${process.pid})`);
  });
  const free = await new Promise<boolean>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(false);
      else reject(error);
    });
    server.listen(ADDRESS, () => {
      resolve(true);
    });
  });
  server.unref();
  if (!free)
    throw new LabError(
      `Another command is changing the lab: lab ${await holder()}\nWait for its end, or end it, and repeat.`,
    );
}

async function holder(): Promise<string> {
  return await new Promise((resolve) => {
    let text = "";
    const socket = connect(ADDRESS);
    socket.setEncoding("utf8");
    socket.setTimeout(1000, () => socket.destroy());
    socket.on("data", (part: string) => (text += part));
    socket.on("error", () => undefined);
    socket.on("close", () => {
      resolve(text === "" ? "(it does not answer)" : text);
    });
  });
}
