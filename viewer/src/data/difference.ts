// What differs from another profile: the graph is the union of both, and `opgraph.analysis.compare` said of every node
// what became of it and what it cost before.

import { type Costs, type Measure, running } from "./costs";
import { type AgainstJson, clean } from "./document";
import type { Item } from "./tree";

export type Change = "same" | "added" | "removed" | "costlier" | "cheaper" | "changed";

const LETTERS: Record<string, Change> = {
  "=": "same", "+": "added", "-": "removed", ">": "costlier", "<": "cheaper", "~": "changed",
};

export class Difference {
  readonly name: string;
  readonly totals: AgainstJson["totals"];
  private sums: Partial<Record<Measure, Float64Array>>;
  private changes = new Map<number, Change>();

  constructor(
    private here: Costs,
    private json: AgainstJson,
  ) {
    this.name = clean(json.name);
    this.totals = json.totals;
    const before = new Map(json.before.map(([node, flops, bytes]) => [node, { flops, bytes }]));
    const sums = (measure: "flops" | "bytes"): Float64Array =>
      running(json.changes.length, (n) => (before.get(n) ?? { [measure]: here.own(measure, n) })[measure] ?? 0);
    this.sums = { flops: sums("flops"), bytes: sums("bytes") };
  }

  change(node: number): Change {
    return LETTERS[this.json.changes[node]];
  }

  /** What an item cost before: its counterparts, and what is gone from it. */
  was(measure: "flops" | "bytes", item: Item): number {
    const sums = this.sums[measure] as Float64Array;
    return sums[item.last + 1] - sums[item.first];
  }

  /** Forget what depends on the costs of this profile: they have changed. */
  forget(): void {
    this.changes.clear();
  }

  /** What is gone from an item. */
  removed(item: Item): number[] {
    const found: number[] = [];
    for (let n = item.first; n <= item.last; n++) if (this.change(n) === "removed") found.push(n);
    return found;
  }

  itemChange(item: Item): Change {
    let found = this.changes.get(item.id);
    if (!found) this.changes.set(item.id, (found = this.changeOf(item)));
    return found;
  }

  private changeOf(item: Item): Change {
    let all: Change = this.change(item.first);
    for (let n = item.first + 1; n <= item.last && all !== "changed"; n++) if (this.change(n) !== all) all = "changed";
    if (all !== "changed" || item.node >= 0) return all;
    const by = (measure: "flops" | "bytes"): number => this.here.item(measure, item) - this.was(measure, item);
    const more = by("flops") || by("bytes");
    return more ? (more > 0 ? "costlier" : "cheaper") : "changed";
  }
}
