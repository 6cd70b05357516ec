import { expect, test } from "vitest";
import { environmentList, hardware, localTag } from "../../components/container";
import { rankEnvironment } from "../../components/rank";
import { rayArguments } from "../../components/ray";
import { schema, type Settings } from "../../components/schema";
import { modelMount, vllmArguments } from "../../components/vllm";
import { configurationOf, digest } from "./stack";

const dev = schema.parse(configurationOf("dev"));
const lab = schema.parse(configurationOf("lab"));
const [head, worker] = dev.nodes as [Settings["nodes"][0], Settings["nodes"][0]];

const pinned = (address: string, netdev: string) => ({
  VLLM_HOST_IP: address,
  RAY_NODE_IP_ADDRESS: address,
  RAY_OVERRIDE_NODE_IP_ADDRESS: address,
  NCCL_SOCKET_IFNAME: netdev,
  GLOO_SOCKET_IFNAME: netdev,
  TP_SOCKET_IFNAME: netdev,
  UCX_NET_DEVICES: netdev,
  OMPI_MCA_btl_tcp_if_include: netdev,
  MN_IF_NAME: netdev,
  RAY_memory_monitor_refresh_ms: "0",
  RAY_prestart_worker_first_driver: "0",
  RAY_enable_metrics_collection: "0",
  RAY_USAGE_STATS_ENABLED: "0",
  RAY_AUTH_MODE: "token",
  VLLM_CACHE_ROOT: "/tmp/ray/vllm-cache",
  VLLM_NO_USAGE_STATS: "1",
  VLLM_RPC_BASE_PATH: "/tmp/ray",
});

test("a Spark's rank is pinned to its own fabric address, interface and RDMA devices", () => {
  const options = { accelerator: "gb10", environment: { NCCL_DEBUG: "INFO" } } as const;
  const gb10 = {
    NCCL_IGNORE_CPU_AFFINITY: "1",
    NCCL_IB_DISABLE: "0",
    PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True",
  };
  expect(rankEnvironment(head, options)).toEqual({
    ...pinned("192.168.200.12", "enP2p1s0f1np1"),
    ...gb10,
    NCCL_IB_HCA: "rocep1s0f1,roceP2p1s0f1",
    NCCL_DEBUG: "INFO",
  });
  expect(rankEnvironment(worker, options)).toEqual({
    ...pinned("192.168.200.13", "enp1s0f0np0"),
    ...gb10,
    NCCL_IB_HCA: "rocep1s0f0,roceP2p1s0f0",
    NCCL_DEBUG: "INFO",
  });
});

test("a rank without an accelerator has nothing of CUDA or RDMA", () => {
  expect(rankEnvironment(worker, { accelerator: "cpu", environment: {} })).toEqual({
    ...pinned("192.168.200.13", "enp1s0f0np0"),
    VLLM_CPU_OMP_THREADS_BIND: "nobind",
    OMP_NUM_THREADS: "1",
  });
});

test("what is not set is left out, never empty", () => {
  const bare = { ...head, fabric: { ...head.fabric, hcas: [] } };
  const names = Object.keys(rankEnvironment(bare, { accelerator: "gb10", environment: {} }));
  expect(names).not.toContain("NCCL_IB_HCA");
  expect(names).not.toContain("NCCL_IB_GID_INDEX");
});

test("Ray listens and joins by fabric addresses alone", () => {
  const common = [
    "--node-manager-port=6380",
    "--object-manager-port=6381",
    "--num-cpus=2",
    "--num-gpus=1",
    "--object-store-memory=1073741824",
  ];
  expect(rayArguments(head, head)).toEqual([
    ...["start", "--block", "--head", "--port=6379", "--include-dashboard=false", "--node-ip-address=192.168.200.12"],
    ...common,
  ]);
  expect(rayArguments(worker, head)).toEqual([
    ...["start", "--block", "--address=192.168.200.12:6379", "--node-ip-address=192.168.200.13"],
    ...common,
  ]);
  for (const node of [head, worker]) expect(rayArguments(node, head).join(" ")).not.toContain(head.host);
});

test("vllm serve of the real deployment", () => {
  expect(vllmArguments(dev, head, 2)).toEqual([
    "serve",
    "/home/aurora/models/Qwen3.5-122B-A10B-FP8",
    "--served-model-name=Qwen/Qwen3.5-122B-A10B-FP8",
    "--host=0.0.0.0",
    "--port=8000",
    "--distributed-executor-backend=ray",
    "--tensor-parallel-size=2",
    "--max-model-len=65536",
    "--gpu-memory-utilization=0.85",
    "--max-num-seqs=4",
    "--max-num-batched-tokens=16384",
    "--reasoning-parser=qwen3",
    "--enable-auto-tool-choice",
    "--tool-call-parser=qwen3_coder",
    "--enable-prefix-caching",
  ]);
});

test("vllm serve with parsers and prefix caching off, and arguments of the person's own", () => {
  const extraArgs = ["--speculative-config", `{"a b":"it's $HOME"}`];
  const off = { reasoningParser: "", toolCallParser: "", prefixCaching: false };
  const server = { ...lab.server, ...off, pipelineParallelSize: 3, extraArgs };
  expect(vllmArguments({ model: lab.model, server }, head, 3)).toEqual([
    "serve",
    "/home/aurora/models/tiny-qwen3-moe",
    "--served-model-name=tiny-qwen3-moe",
    "--host=0.0.0.0",
    "--port=8000",
    "--distributed-executor-backend=ray",
    "--tensor-parallel-size=1",
    "--pipeline-parallel-size=3",
    "--max-model-len=512",
    "--max-num-seqs=8",
    "--no-enable-prefix-caching",
    "--speculative-config",
    `{"a b":"it's $HOME"}`,
  ]);
});

test("a Spark's container gets the GPU, the InfiniBand devices and pinned memory; without an accelerator nothing", () => {
  expect(hardware("gb10")).toEqual({
    gpus: "all",
    devices: [{ hostPath: "/dev/infiniband", containerPath: "/dev/infiniband", permissions: "rwm" }],
    capabilities: { adds: ["IPC_LOCK"] },
    ulimits: [
      { name: "memlock", soft: -1, hard: -1 },
      { name: "stack", soft: 67108864, hard: 67108864 },
    ],
  });
  expect(hardware("cpu")).toEqual({});
});

test("a snapshot in a hub cache is mounted with the files that its links lead to", () => {
  expect(modelMount("/home/a/.cache/huggingface/hub/models--Q--M/snapshots/0123")).toBe(
    "/home/a/.cache/huggingface/hub/models--Q--M",
  );
  expect(modelMount("/models/snapshots/mine")).toBe("/models/snapshots/mine");
});

test("the image goes by a tag with its digest, one for each deployment", () => {
  for (const image of [`10.1.230.1:5000/vllm@sha256:${digest}`, `sha256:${digest}`]) {
    expect(localTag("lab", image)).toBe("dgx-spark-serving:lab-0123456789ab");
  }
});

test("variables have a fixed order, whatever order they were set in", () => {
  expect(environmentList({ B: "2", A: "1=1" })).toEqual(["A=1=1", "B=2"]);
});
