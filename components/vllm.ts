import * as net from "node:net";
import type { NodeSettings, Settings } from "./schema";

/**
 * The folder to mount so that a model's files can be read in a container, at the same path as on the host.
 * A snapshot in a Hugging Face cache holds links to `../../blobs`, so there it is the whole repository's folder.
 */
export function modelMount(modelPath: string): string {
  return /^(.*\/models--[^/]+)\/snapshots\/[^/]+\/*$/.exec(modelPath)?.[1] ?? modelPath;
}

/**
 * Arguments of `vllm` for the server's container. No secret is among them: the API key is an environment variable.
 *
 * @param head the node that serves
 * @param ranks number of nodes, each with one rank; a multiple of the pipeline stages
 */
export function vllmArguments(
  { model, server }: Pick<Settings, "model" | "server">,
  head: NodeSettings,
  ranks: number,
): string[] {
  const option = (flag: string, value: string | number | undefined) =>
    value === undefined || value === "" ? [] : [`${flag}=${value}`];
  return [
    "serve",
    model.path,
    `--served-model-name=${model.name}`,
    `--host=${net.isIPv6(head.host) ? "::" : "0.0.0.0"}`,
    `--port=${server.port}`,
    // Always said: newer images chose another backend by themselves.
    "--distributed-executor-backend=ray",
    `--tensor-parallel-size=${ranks / server.pipelineParallelSize}`,
    ...(server.pipelineParallelSize > 1 ? [`--pipeline-parallel-size=${server.pipelineParallelSize}`] : []),
    ...option("--max-model-len", server.maxModelLen),
    ...option("--gpu-memory-utilization", server.gpuMemoryUtilization),
    ...option("--max-num-seqs", server.maxNumSeqs),
    ...option("--max-num-batched-tokens", server.maxNumBatchedTokens),
    ...option("--reasoning-parser", server.reasoningParser),
    ...(server.toolCallParser === ""
      ? []
      : ["--enable-auto-tool-choice", `--tool-call-parser=${server.toolCallParser}`]),
    server.prefixCaching ? "--enable-prefix-caching" : "--no-enable-prefix-caching",
    ...server.extraArgs,
  ];
}
