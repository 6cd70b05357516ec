import { createHash } from "node:crypto";
import * as http from "node:http";
import type { AddressInfo } from "node:net";

/** What goes wrong with the answers about a file: how often, the next times that its bytes are asked for. */
export interface Faults {
  /** The connection ends in the middle: closed, so that the client resumes, or reset. */
  closed?: number;
  reset?: number;
  /** The last byte is another. */
  wrong?: number;
  unavailable?: number;
  tooMany?: number;
  /** Seconds that a 429 asks for. */
  retryAfter?: number;
  /** For as long as it is set. */
  bytesPerSecond?: number;
}

const hash = (algorithm: string, ...parts: (string | Buffer)[]) =>
  parts.reduce((found, part) => found.update(part), createHash(algorithm)).digest("hex");

/** Large files are those that a hub keeps outside of git: it tells their sha256. */
function file(name: string, content: Buffer) {
  const sha256 = /\.(safetensors|gguf|bin)$/.test(name) ? hash("sha256", content) : undefined;
  return { content, sha256, git: hash("sha1", `blob ${String(content.length)}\0`, content) };
}

/** One model on a hub of its own: what huggingface_hub asks for when it lists and downloads a model, by plain HTTP. */
export class Hub {
  repository: string;
  /** Whoever does not name this token is refused; a gated repository lists its files, and refuses them. */
  token: string | undefined;
  gated = false;
  /** By name of a file, or "listing". */
  readonly faults: Record<string, Faults> = {};
  /** Sizes that are told instead of the real ones. */
  sizes: Record<string, number> = {};
  /** Bytes of each file that were sent, and all requests: `GET model.safetensors`. */
  sent: Record<string, number> = {};
  requests: string[] = [];
  /** The commit that `main` is. */
  head = "";
  private files: Record<string, ReturnType<typeof file>> = {};
  private readonly server = http.createServer((request, response) => {
    this.answer(request, response);
  });

  constructor(repository: string) {
    this.repository = repository;
  }

  /** What the repository holds from now on, by a new commit on `main`. */
  commit(files: Record<string, Buffer>): void {
    this.files = Object.fromEntries(Object.entries(files).map(([name, content]) => [name, file(name, content)]));
    this.head = hash("sha1", ...Object.entries(files).flat());
  }

  /** The hub's address, once it listens. */
  async listen(address = "127.0.0.1", port = 0): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(port, address, resolve));
    return `http://${address}:${String((this.server.address() as AddressInfo).port)}`;
  }

  close(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    const refuse = (status: number, code: string, more: http.OutgoingHttpHeaders = {}) => {
      response.writeHead(status, { "x-error-code": code, "content-length": 0, ...more }).end();
    };
    const path = decodeURIComponent((request.url ?? "").replace(/\?.*/, ""));
    const api = `/api/models/${this.repository}/revision/`;
    const resolve = `/${this.repository}/resolve/`;
    const [revision, name] = path.startsWith(api)
      ? [path.slice(api.length), "listing"]
      : [/^[^/]*/.exec(path.slice(resolve.length))?.[0], path.slice(resolve.length).replace(/^[^/]*\//, "")];
    this.requests.push(`${request.method ?? ""} ${name}`);
    if (!path.startsWith(api) && !path.startsWith(resolve)) refuse(404, "RepoNotFound");
    else if (this.token !== undefined && request.headers.authorization !== `Bearer ${this.token}`) {
      const message = "Invalid credentials in Authorization header";
      refuse(401, "", request.headers.authorization === undefined ? {} : { "x-error-message": message });
    } else if (revision !== "main" && revision !== this.head) refuse(404, "RevisionNotFound");
    else if (this.gated && name !== "listing") refuse(403, "GatedRepo");
    else if (request.method !== "HEAD" && this.happens(name, "unavailable")) refuse(503, "");
    else if (request.method !== "HEAD" && this.happens(name, "tooMany"))
      refuse(429, "", { "retry-after": String(this.faults[name]?.retryAfter ?? 1) });
    else if (name === "listing") this.list(response);
    else if (this.files[name] === undefined) refuse(404, "EntryNotFound");
    else this.send(name, this.files[name], request, response);
  }

  /** Whether a fault comes now; it is one less then. */
  private happens(name: string, fault: "closed" | "reset" | "wrong" | "unavailable" | "tooMany"): boolean {
    const faults = this.faults[name] ?? {};
    const left = faults[fault] ?? 0;
    if (left > 0) faults[fault] = left - 1;
    return left > 0;
  }

  private list(response: http.ServerResponse): void {
    const siblings = Object.entries(this.files).map(([rfilename, { content, git, sha256 }]) => {
      const size = this.sizes[rfilename] ?? content.length;
      return { rfilename, size, blobId: git, ...(sha256 && { lfs: { size, sha256, pointerSize: 134 } }) };
    });
    const body = JSON.stringify({ id: this.repository, modelId: this.repository, sha: this.head, tags: [], siblings });
    response.writeHead(200, { "content-type": "application/json" }).end(body);
  }

  private send(
    name: string,
    { content, git, sha256 }: ReturnType<typeof file>,
    request: http.IncomingMessage,
    response: http.ServerResponse,
  ): void {
    const size = content.length;
    const start = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
    response.writeHead(start > 0 ? 206 : 200, {
      "accept-ranges": "bytes",
      "content-length": size - start,
      ...(start > 0 && { "content-range": `bytes ${String(start)}-${String(size - 1)}/${String(size)}` }),
      etag: `"${sha256 ?? git}"`,
      "x-repo-commit": this.head,
      ...(sha256 && { "x-linked-size": size, "x-linked-etag": `"${sha256}"` }),
    });
    if (request.method === "HEAD") {
      response.end();
      return;
    }
    let body = Buffer.from(content.subarray(start));
    if (this.happens(name, "wrong")) body.writeUInt8((body.at(-1) ?? 0) ^ 1, body.length - 1);
    const cut = this.happens(name, "closed") ? "destroy" : this.happens(name, "reset") ? "resetAndDestroy" : undefined;
    if (cut) body = body.subarray(0, body.length / 2);
    const rate = this.faults[name]?.bytesPerSecond;
    const piece = rate === undefined ? body.length : Math.ceil(rate / 10);
    const next = (at: number) => {
      if (response.destroyed) return;
      if (at >= body.length && cut) response.socket?.[cut]();
      else if (at >= body.length) response.end();
      else
        response.write(body.subarray(at, at + piece), () => {
          this.sent[name] = (this.sent[name] ?? 0) + Math.min(piece, body.length - at);
          setTimeout(next, rate === undefined ? 0 : 100, at + piece);
        });
    };
    next(0);
  }
}
