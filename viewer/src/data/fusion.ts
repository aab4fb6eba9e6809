// The fused subgraphs, as Python partitioned the graph: which nodes a compiler would run as one kernel, and why.

import { clean, type PartitionJson, stepped } from "./document";
import type { Graph } from "./graph";

export interface Subgraph {
  index: number;
  rule: string;
  reason: string;
  nodes: number[];
  /** Bytes that the one fused kernel moves. */
  read: number;
  written: number;
  /** Which distinct part it is, for the times of devices. */
  part: number;
}

export class Fusion {
  readonly subgraphs: Subgraph[];
  /** By node, the position of its subgraph, or -1. */
  readonly of: Int32Array;

  constructor(graph: Graph, json: PartitionJson) {
    const count = graph.nodes.length;
    this.of = new Int32Array(count).fill(-1);
    const rules = (json.rules ?? []).map(([rule, reason]) => [clean(rule), clean(reason, 1000)]);
    this.subgraphs = (json.subgraphs ?? []).map(([part, ...steps], index) => {
      const [rule, read, written] = json.parts[part];
      const nodes = stepped(steps).filter((id) => id >= 1 && id <= count).map((id) => id - 1);
      for (const n of nodes) this.of[n] = index;
      const [name, reason] = rules[rule] ?? ["", ""];
      return { index, rule: name, reason, nodes, read, written, part };
    });
  }

  at(node: number): Subgraph | null {
    return this.subgraphs[this.of[node]] ?? null;
  }
}
