// What must not be overlooked, counted beneath every item: nodes at which the model failed, nodes of unknown
// cost, seams between fragments, and what was removed.

import type { Costs } from "./costs";
import type { Graph } from "./graph";
import type { Item } from "./tree";

export class Flags {
  private counted = new Map<string, Int32Array>();

  constructor(
    private graph: Graph,
    private costs: Costs,
  ) {}

  errors(item: Item): number {
    return this.count("error", item, (i) => this.graph.nodes[i].error !== "");
  }

  unknown(item: Item): number {
    return this.count("unknown", item, (i) => this.costs.node("unknown", i) > 0);
  }

  /** Nodes that begin another fragment than the node before. */
  breaks(item: Item): number {
    const { nodes } = this.graph;
    return this.count("break", item, (i) => i > 0 && nodes[i].fragment !== nodes[i - 1].fragment);
  }

  /** Nodes that only the other profile has. */
  removed(item: Item): number {
    return this.count("removed", item, (i) => this.graph.nodes[i].removed);
  }

  private count(name: string, item: Item, has: (node: number) => boolean): number {
    let before = this.counted.get(name);
    if (!before) {
      before = new Int32Array(this.graph.nodes.length + 1);
      for (let i = 0; i < this.graph.nodes.length; i++) before[i + 1] = before[i] + (has(i) ? 1 : 0);
      this.counted.set(name, before);
    }
    return before[item.last + 1] - before[item.first];
  }
}
