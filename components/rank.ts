import type { Accelerator, NodeSettings } from "./schema";

/**
 * Folder inside the containers that Ray's and the server's share on the head: Ray's session, vLLM's local sockets and cache.
 * Without the second in a shared place the weights load and then nothing happens, for ever.
 */
export const sessionDirectory = "/tmp/ray";

/** What the engine's processes on every node have in common. */
export interface RankOptions {
  accelerator: Accelerator;
  /** `server.environment` of the settings. */
  environment: Readonly<Record<string, string>>;
}

/**
 * Environment of the engine's rank on one node. Ray's workers inherit it from the raylet, so it is set on the container
 * of every node, with that node's own values: Ray hands none of them from the driver to the workers.
 */
export function rankEnvironment(node: NodeSettings, options: RankOptions): Record<string, string> {
  const { address, interface: netdev } = node.fabric;
  return {
    // Every automatic choice of an address or interface is pinned to the fabric: each has picked the wrong one somewhere.
    VLLM_HOST_IP: address,
    RAY_NODE_IP_ADDRESS: address,
    RAY_OVERRIDE_NODE_IP_ADDRESS: address,
    NCCL_SOCKET_IFNAME: netdev,
    GLOO_SOCKET_IFNAME: netdev,
    TP_SOCKET_IFNAME: netdev,
    UCX_NET_DEVICES: netdev,
    OMPI_MCA_btl_tcp_if_include: netdev,
    MN_IF_NAME: netdev,
    // Unified memory holds the page cache too: Ray's monitor takes a loading model for a leak, and kills it at 95 %.
    RAY_memory_monitor_refresh_ms: "0",
    // A driver waits at its start for as many workers as the head has CPUs, of which it uses one at most
    // (raylet/worker_pool.cc, ExecuteOnPrestartWorkersStarted). RAY_num_prestart_python_workers, Ray 2.60 does not read.
    RAY_prestart_worker_first_driver: "0",
    // Nobody asks for Ray's own figures, which each of its processes would send to an agent for as long as it runs.
    RAY_enable_metrics_collection: "0",
    RAY_USAGE_STATS_ENABLED: "0",
    // From Ray 2.52 on. Later ones want a token in any case, and each node would make its own.
    RAY_AUTH_MODE: "token",
    VLLM_NO_USAGE_STATS: "1",
    VLLM_RPC_BASE_PATH: sessionDirectory,
    // What vLLM found out or compiled is not found out again by the next container on the head: 7 s of a load in the lab.
    VLLM_CACHE_ROOT: `${sessionDirectory}/vllm-cache`,
    ...acceleratorEnvironment(node, options.accelerator),
    ...options.environment,
  };
}

function acceleratorEnvironment(node: NodeSettings, accelerator: Accelerator): Record<string, string> {
  switch (accelerator) {
    case "gb10":
      return {
        NCCL_IGNORE_CPU_AFFINITY: "1",
        NCCL_IB_DISABLE: "0",
        // Unset, never empty: NCCL reads an empty list as a list.
        ...(node.fabric.hcas.length > 0 && { NCCL_IB_HCA: node.fabric.hcas.join(",") }),
        PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True",
      };
    case "cpu":
      return { VLLM_CPU_OMP_THREADS_BIND: "nobind", OMP_NUM_THREADS: "1" };
    default:
      return accelerator satisfies never;
  }
}

/** Variables that `server.environment` must not set. */
export const reservedVariables: ReadonlySet<string> = new Set([
  ...(["gb10", "cpu"] as const).flatMap((accelerator) =>
    Object.keys(
      rankEnvironment(
        { name: "", host: "", port: 0, user: "", hostKey: "", fabric: { interface: "", address: "", hcas: [""] } },
        { accelerator, environment: {} },
      ),
    ).filter((name) => !["OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_CACHE_ROOT"].includes(name)),
  ),
  "RAY_ADDRESS",
  "RAY_AUTH_TOKEN",
  "RAY_AUTH_TOKEN_PATH",
  "VLLM_API_KEY",
  "HF_TOKEN",
  "HF_HUB_OFFLINE",
]);
