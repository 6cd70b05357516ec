import type { NodeSettings } from "../schema";
import type { NodeFacts } from "./facts";
import type { Problem } from "./problem";

/** The model's folder on one node. */
export type ModelFacts =
  /** `digest`: of the files' names and sizes, the same wherever the folder is. */
  | { files: number; bytes: number; digest: string }
  /** The program brings it there. `changed`: names of files that are not as they were when it did. */
  | { rsync: boolean; changed: string[] }
  | { problem: string };

/** What one node saw of another over the fabric. */
export interface PeerResult {
  /** By port: null when it could be connected to, else why not. */
  ports: Record<string, string | null>;
  mtuBytes: number | null;
  /** Whether a packet of that size came through whole; null: not tried. */
  mtuPassed: boolean | null;
  tcpBytesPerSecond: number | null;
}

/** What a node saw of the fabric. */
export interface FabricFacts {
  /** Why it could not take part; null: it could. */
  listening: string | null;
  /** By name of the peer. */
  peers: Record<string, PeerResult>;
}

/** All that is known of one node before anything is changed. */
export interface NodeProbe {
  node: NodeSettings;
  /** Why the node could not be asked; null: it was. */
  failure: Problem | null;
  facts: NodeFacts | null;
  model: ModelFacts | null;
  /** Null where there is one node only. */
  fabric: FabricFacts | null;
}
