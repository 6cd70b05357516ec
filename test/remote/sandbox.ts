import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import * as os from "node:os";
import * as path from "node:path";

const scripts = path.resolve("scripts/remote");

/** How a program ended. */
export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A Spark's user account as the remote scripts see it: a home of its own, and a docker client that is not one. */
export class Sandbox {
  readonly home = fs.mkdtempSync(path.join(os.tmpdir(), "spark-"));
  readonly docker = path.join(this.home, "docker-world");

  constructor() {
    fs.mkdirSync(this.docker);
    fs.mkdirSync(path.join(this.home, "bin"));
    fs.symlinkSync(path.resolve("test/remote/docker"), path.join(this.home, "bin/docker"));
  }

  /** Writes a file of the sandbox; what is no text is written as JSON. */
  write(name: string, content: unknown, mode = 0o644): string {
    const file = path.join(this.home, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content), { mode });
    return file;
  }

  read(name: string): string {
    return fs.readFileSync(path.join(this.home, name), "utf8");
  }

  environment(): NodeJS.ProcessEnv {
    return {
      HOME: this.home,
      USER: "aurora",
      PATH: `${path.join(this.home, "bin")}:/usr/bin:/bin:/usr/sbin:/sbin`,
      FAKE_DOCKER: this.docker,
      PYTHONDONTWRITEBYTECODE: "1",
    };
  }

  /** Runs a remote script to its end. */
  run(script: string, args: string[], more: NodeJS.ProcessEnv = {}): Promise<Ended> {
    const interpreter = script.endsWith(".py") ? ["python3", "-B"] : ["bash"];
    return this.exec([...interpreter, path.resolve(scripts, script), ...args], more);
  }

  /** Runs a program to its end; with `pipe` its stdin stays open until then. */
  exec(argv: string[], more: NodeJS.ProcessEnv = {}, stdin: "ignore" | "pipe" = "ignore"): Promise<Ended> {
    const [program = "", ...args] = argv;
    const child = spawn(program, args, {
      cwd: this.home,
      env: { ...this.environment(), ...more },
      stdio: [stdin, "pipe", "pipe"],
    });
    const ended: Ended = { code: null, stdout: "", stderr: "" };
    child.stdout?.on("data", (data: Buffer) => (ended.stdout += data.toString()));
    child.stderr?.on("data", (data: Buffer) => (ended.stderr += data.toString()));
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => {
        resolve({ ...ended, code });
      });
    });
  }

  remove(): void {
    fs.rmSync(this.home, { recursive: true });
  }
}

/** Waits until something is so, for a minute at most. */
export async function until(condition: () => boolean): Promise<void> {
  const end = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > end) throw new Error("waited 60 s in vain");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Ids of the processes that are alive and of which `is` says yes, by their own id and their group's. */
export function processes(is: (id: string, group: string) => boolean): string[] {
  return fs.readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const fields = fs
        .readFileSync(`/proc/${name}/stat`, "utf8")
        .replace(/^.*\) /, "")
        .split(" ");
      return fields[0] !== "Z" && is(name, fields[2] ?? "");
    } catch {
      return false;
    }
  });
}

/** Starts an HTTP server on loopback that answers by `handle`; its requests are kept. */
export async function serve(
  handle: (request: { url: string; key: string | undefined; body: string }, response: http.ServerResponse) => void,
) {
  const server = http.createServer((request, response) => {
    let body = "";
    request.on("data", (data: Buffer) => (body += data.toString()));
    request.on("end", () => {
      handle({ url: request.url ?? "", key: request.headers.authorization, body }, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: String((server.address() as AddressInfo).port),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Answers a request with JSON. */
export function json(response: http.ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}
