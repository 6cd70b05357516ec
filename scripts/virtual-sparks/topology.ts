import { LabError } from "./run";

/** Where the operator, this machine, stands. */
export const OPERATOR = { address: "10.1.230.1", prefix: 24, network: "10.1.230.0/24", interface: "dgx-lab" } as const;

/** The head's link to the operator. */
export const MANAGEMENT = { address: "10.1.230.180", interface: "enP7s7" } as const;

/** The private link between the Sparks. */
export const FABRIC = { network: "192.168.200.0/24", prefix: 24, firstHost: 12, mtu: 9000 } as const;

/** The registry on the operator's side: the lab's internet. */
export const REGISTRY = { port: 5000, host: `${OPERATOR.address}:5000` } as const;

/** The person whom the nodes know. */
export const USER = "aurora";

export const MAX_NODES = 8;

/** One virtual Spark, as the lab knows it. */
export interface Node {
  /** "spark-1" is the head. */
  name: string;
  /** From 1. */
  number: number;
  isHead: boolean;
  /** Address that SSH goes to: the head's management address, a worker's fabric address. */
  host: string;
  fabric: { interface: string; address: string };
  /** Name of its network namespace on this machine. */
  namespace: string;
}

/** Prefix of everything of the lab that has a name of the whole machine. */
export const PREFIX = "dgx-spark-lab";

/** The network namespace with the bridge that stands for the cable or switch between the Sparks. */
export const SWITCH_NAMESPACE = `${PREFIX}.switch`;

/** The lab's nodes, head first; 1 to 8 of them. */
export function topology(count: number): Node[] {
  if (!Number.isInteger(count) || count < 1 || count > MAX_NODES) {
    throw new LabError(`--nodes ${count}: give a whole number from 1 to ${MAX_NODES}`);
  }
  return Array.from({ length: count }, (_, index) => {
    const number = index + 1;
    const name = `spark-${number}`;
    const address = `192.168.200.${FABRIC.firstHost + index}`;
    return {
      name,
      number,
      isHead: index === 0,
      host: index === 0 ? MANAGEMENT.address : address,
      // Real Sparks differ in which port the cable is in.
      fabric: { interface: number % 2 === 1 ? "enp1s0f0np0" : "enP2p1s0f1np1", address },
      namespace: `${PREFIX}.${name}`,
    };
  });
}
