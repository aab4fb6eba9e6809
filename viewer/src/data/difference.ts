// What differs from another profile: every node of this one has a counterpart there, or is new; nodes of the
// other that are gone count for the module in which they stood.

import { Costs, type Measure } from "./costs";
import { clean, type AgainstJson } from "./document";
import { type Graph, type Model, readModel } from "./graph";
import type { Item } from "./items";

export type Change = "same" | "added" | "dearer" | "cheaper" | "changed";

export class Difference {
  readonly model: Model;
  readonly costs: Costs;
  /** By node, the position of its counterpart, or -1. */
  readonly before: Int32Array;
  private gone: { node: number; path: string }[];

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
    this.gone = (json.removed ?? [])
      .filter(([id]) => id >= 1 && id <= count)
      .map(([id, path]) => ({ node: id - 1, path: clean(path, 2000) }));
  }

  change(node: number): Change {
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
    let sum = 0;
    for (let i = item.first; i <= item.last; i++) {
      if (this.before[i] >= 0) sum += this.costs.node(measure, this.before[i]);
    }
    for (const { node } of this.removed(item)) sum += this.costs.node(measure, node);
    return sum;
  }

  /** What is gone from a module. */
  removed(item: Item): { node: number; path: string }[] {
    if (item.kind === "root") return this.gone;
    if (item.kind !== "module" || item.call > 1) return [];
    return this.gone.filter(({ path }) => path === item.path || path.startsWith(`${item.path}.`));
  }

  itemChange(item: Item): Change {
    if (item.node >= 0) return this.change(item.node);
    const gone = this.removed(item).length;
    let all: Change | "" = gone ? "changed" : "";
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
