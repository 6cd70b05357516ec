import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { explain } from "../../components/preflight/explain";

const fixtures = path.join(__dirname, "../fixtures");
const preflight = path.join(__dirname, "../../scripts/preflight");

/** What kinds of output each saved one is taken for. */
const kinds: Readonly<Record<string, readonly string[]>> = {
  "host/df-h-1tb": ["df"],
  "host/dgx-release-gx10-four-updates": ["/etc/dgx-release"],
  "host/dgx-release-hp-unquoted": ["/etc/dgx-release"],
  "host/docker-info-runtimes-grep": ["docker info"],
  "host/free-h-chinese-locale": ["free -h"],
  "host/free-h-two-engines": ["free -h"],
  "host/lscpu-german-locale": ["lscpu"],
  "host/lscpu-gx10": ["lscpu"],
  "host/meminfo-after-stop": ["/proc/meminfo"],
  "host/nvcc-version-13.0": ["nvcc --version"],
  "host/nvidia-ctk-version": ["nvidia-ctk --version"],
  "host/os-release-24.04.4": ["/etc/os-release"],
  "host/uname-a-pgx": ["uname -a"],
  "nccl/all_gather-1g-4g-one-cable": ["nccl-tests"],
  "nccl/all_gather-512m-16g-merged-nics": ["nccl-tests"],
  "nccl/debug-info-four-hcas-collapse-excerpt": ["NCCL's log"],
  "nccl/debug-info-ibext-both-twins-excerpt": ["NCCL's log"],
  "nccl/debug-info-net-ib-but-slow": ["nccl-tests", "NCCL's log"],
  "nccl/debug-info-net-socket-excerpt": ["cause", "NCCL's log"],
  "nccl/debug-info-two-rails": ["nccl-tests", "NCCL's log"],
  "nccl/error-ibv-modify-qp-110": ["cause"],
  "network/ethtool-speed-200g": ["ethtool"],
  "network/ip-addr-show-enp1s0f1np1": ["ip address"],
  "network/ip-br-addr-one-cable": ["ip -brief address"],
  "network/ip-br-link-two-cables": ["ip -brief link"],
  "network/ip-s-link-no-cable": ["ip link"],
  "network/netplan-40-cx7-four-ports-same-subnet.yaml": ["netplan"],
  "network/netplan-40-cx7-one-cable-mtu9000.yaml": ["netplan"],
  "network/ping-jumbo-local-mtu-1500": ["ping"],
  "network/ping-jumbo-ok": ["ping"],
  "nvidia-smi/error-driver-library-mismatch": ["cause", "nvidia-smi"],
  "nvidia-smi/error-no-driver-communication": ["nvidia-smi"],
  // CSV without a header could be anything.
  "nvidia-smi/query-15-fields-nounits": [],
  "nvidia-smi/query-compute-apps-nounits": [],
  "nvidia-smi/query-index-name-bus-driver-cap-memory": [],
  "nvidia-smi/table-580.126.09-busy": ["nvidia-smi"],
  "nvidia-smi/table-580.159.03-vllm": ["nvidia-smi"],
  "nvidia-smi/table-580.173.02-two-vllm": ["nvidia-smi"],
  "nvidia-smi/table-580.178.04-no-timestamp": ["nvidia-smi"],
  "nvidia-smi/table-580.95.05-desktop": ["nvidia-smi"],
  "nvidia-smi/version-580.142": ["nvidia-smi --version"],
  "rdma/ib_write_bw-dell-4qp": ["ib_write_bw"],
  "rdma/ib_write_bw-one-rail-mtu1024": ["ib_write_bw"],
  "rdma/ib_write_bw-two-rails-interleaved": ["ib_write_bw"],
  "rdma/ibdev2netdev-no-cable": ["ibdev2netdev"],
  "rdma/ibdev2netdev-one-cable-port0": ["ibdev2netdev"],
  "rdma/ibdev2netdev-one-cable-port1-other-order": ["ibdev2netdev"],
  "rdma/ibdev2netdev-two-cables": ["ibdev2netdev"],
  "rdma/ibv_devinfo-one-cable": ["ibv_devinfo"],
  "rdma/lspci-mellanox": ["lspci"],
  "rdma/rdma-link-one-cable": ["rdma link"],
  "rdma/rdma-link-two-cables": ["rdma link"],
  "rdma/show_gids-one-cable": ["show_gids"],
  "rdma/sysfs-rate-state": ["sysfs rate and state"],
};

test("every saved output of a program is recognised as what it is", () => {
  const names = ["host", "nccl", "network", "nvidia-smi", "rdma"].flatMap((folder) =>
    fs.readdirSync(path.join(fixtures, folder)).map((name) => `${folder}/${name.replace(/\.txt$/, "")}`),
  );
  const found = names.map((name) => {
    const text = explain(fs.readFileSync(path.join(fixtures, `${name}.txt`), "utf8"));
    return [name, [...text.matchAll(/^([a-zA-Z/][^:\n]*): ["[{A-Z]/gm)].map(([, title]) => title)];
  });
  expect(Object.fromEntries(found)).toEqual(kinds);
});

test("a log of a million lines, which begin like something that is known, is read to its end", async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "explain-"));
  try {
    const beginnings = ["", " \t", "|", "#", "DEV", "1: lo: <", "1: lo: <UP>"].map((line) =>
      `${line}\n`.repeat(200_000),
    );
    const file = path.join(folder, "log");
    fs.writeFileSync(
      file,
      [...beginnings, "1".repeat(400_000), "NVIDIA Container Toolkit CLI version 1.20.1"].join("\n"),
    );
    // It takes 2 s; with the square of the lines it would be minutes.
    const { stdout } = await promisify(execFile)(preflight, ["explain", file], { timeout: 30_000 });
    expect(stdout).toBe('nvidia-ctk --version: "1.20.1"\n');
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});

test("a log is explained by its cause, a value by its number, and what is not known by a word", async () => {
  const run = promisify(execFile);
  const socket = path.join(fixtures, "nccl/debug-info-net-socket-excerpt.txt");
  expect((await run(preflight, ["explain", socket])).stdout).toMatch(
    /^cause: .+ \(nccl-over-sockets\)\n {2}seen: .+\n {2}mend: .+\n/,
  );
  const nvcc = path.join(fixtures, "host/nvcc-version-13.0.txt");
  expect((await run(preflight, ["explain", nvcc])).stdout).toBe('nvcc --version: "13.0"\n');
  // Known by its cause; of nvidia-smi's other words nothing is read.
  const lost = path.join(fixtures, "logs/docker/gpu-lost.txt");
  expect((await run(preflight, ["explain", lost])).stdout).toMatch(
    /^cause: .+ \(gpu-lost\)\n {2}seen: .+\n {2}mend: .+\n$/,
  );
  expect((await run(preflight, ["explain", "/dev/null"])).stdout).toBe("Nothing in it is known here.\n");
  await expect(run(preflight, ["explain", "/no/such/file"])).rejects.toMatchObject({
    code: 2,
    stderr: "preflight: there is no file /no/such/file\n",
  });
});
