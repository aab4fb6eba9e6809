// What differs from another profile: every node of this one has a counterpart there, or is new; nodes of the
// other that are gone stand among them, marked as removed.

import { Costs, type Measure, running } from "./costs";
import type { AgainstJson } from "./document";
import type { Graph } from "./graph";
import { type Model, readModel } from "./model";
import type { Item } from "./items";

export type Change = "same" | "added" | "removed" | "dearer" | "cheaper" | "changed";

export class Difference {
  readonly model: Model;
  readonly costs: Costs;
  /** By node, the position of its counterpart, or -1. Of a removed node it is the node itself. */
  readonly before: Int32Array;
  private sums = new Map<Measure, Float64Array>();
  private changes = new Map<number, Change>();

  constructor(
    private graph: Graph,
    private here: Costs,
    json: AgainstJson,
  ) {
    this.model = readModel(json.profile);
    this.costs = new Costs(this.model.graph);
    const count = this.model.graph.nodes.length;
    this.before = new Int32Array(graph.nodes.length).fill(-1);
    (json.before ?? []).slice(0, this.before.length).forEach((id, i) => (this.before[i] = id >= 1 && id <= count ? id - 1 : -1));
  }

  change(node: number): Change {
    if (this.graph.nodes[node].removed) return "removed";
    const other = this.before[node];
    if (other < 0) return "added";
    for (const measure of ["flops", "bytes", "otherFlops"] as const) {
      const by = this.here.node(measure, node) - this.costs.node(measure, other);
      if (by) return by > 0 ? "dearer" : "cheaper";
    }
    return this.shape(this.graph, node) === this.shape(this.model.graph, other) ? "same" : "changed";
  }

  /** What an item cost before: its counterparts, and what is gone from it. */
  was(measure: Measure, item: Item): number {
    let sums = this.sums.get(measure);
    if (!sums) {
      sums = running(this.before.length, (i) => (this.before[i] >= 0 ? this.costs.node(measure, this.before[i]) : 0));
      this.sums.set(measure, sums);
    }
    return sums[item.last + 1] - sums[item.first];
  }

  /** Forget what depends on the costs of this profile: they have changed. */
  forget(): void {
    this.changes.clear();
  }

  /** What is gone from an item. */
  removed(item: Item): number[] {
    const { nodes } = this.graph;
    return nodes.slice(item.first, item.last + 1).flatMap((n) => (n.removed ? n.index : []));
  }

  itemChange(item: Item): Change {
    let found = this.changes.get(item.id);
    if (!found) this.changes.set(item.id, (found = this.changeOf(item)));
    return found;
  }

  private changeOf(item: Item): Change {
    if (item.node >= 0) return this.change(item.node);
    let all: Change | "" = "";
    for (let i = item.first; i <= item.last; i++) {
      const change = this.change(i);
      if (!all) all = change;
      else if (all !== change) all = "changed";
    }
    if (all !== "changed") return all || "same";
    const by = this.here.item("flops", item) - this.was("flops", item) || this.here.item("bytes", item) - this.was("bytes", item);
    return by ? (by > 0 ? "dearer" : "cheaper") : "changed";
  }

  private shape(graph: Graph, node: number): string {
    return graph.nodes[node].outputs.map((v) => `${graph.values[v].dtype}${graph.values[v].shape.join("x")}`).join();
  }
}
