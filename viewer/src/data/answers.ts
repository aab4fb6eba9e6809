// What Python found out beside the costs: the memory that is live over the run, kernel by kernel; the fused subgraphs; and
// what differs from another profile, where the graph is the union of both (`opgraph.analysis.compare` said of every node
// what became of it and what it cost before).

import { type Costs, lastOf, type Measure, running } from "./costs";
import { type AgainstJson, clean, type DeviceJson, numbers, type PageJson, type PartitionJson, stepped } from "./document";
import type { Graph } from "./graph";
import { type Apart, type Interval, type Item, repetitions } from "./tree";

export class Memory {
  /** Bytes live while each kernel runs. */
  readonly live: Float64Array;
  readonly peakAt: number;
  readonly kernels: number;
  /** By node, how many kernels ran before it; one more entry for the end. */
  readonly starts: Float64Array;

  constructor(private graph: Graph, { live: [changes, kinds] = [[], []], peak, ran }: PageJson) {
    const by = numbers(kinds);
    this.kernels = by.length;
    this.live = running(by.length, (k) => changes[by[k]]).slice(1);
    this.peakAt = peak ?? 0;
    const counts = ran && numbers(ran);
    this.starts = running(graph.nodes.length, (n) => (counts ? counts[n] : graph.nodes[n].kernels.length));
  }

  get peak(): number {
    return this.live[this.peakAt] ?? 0;
  }

  /** The node that runs kernel `k`. */
  node(k: number): number {
    return lastOf(this.graph.nodes.length, (n) => this.starts[n] <= k);
  }

  /** What is live while kernel `k` runs, largest first: the bytes and the node that made them (or -1). */
  at(k: number): { bytes: number; node: number }[] {
    return this.graph.storages
      .filter((s) => s.born <= k && s.died > k && s.bytes > 0)
      .map(({ bytes, node }) => ({ bytes, node }))
      .sort((a, b) => b.bytes - a.bytes);
  }
}

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

export type Change = "same" | "added" | "removed" | "costlier" | "cheaper" | "changed";

const LETTERS: Record<string, Change> = {
  "=": "same", "+": "added", "-": "removed", ">": "costlier", "<": "cheaper", "~": "changed",
};

/** By what two profiles are compared. */
export type Compared = "flops" | "bytes" | "time";

export class Difference {
  readonly name: string;
  readonly totals: AgainstJson["totals"];
  private sums: Partial<Record<Measure, Float64Array>>;
  private work: number[];
  private changes = new Map<number, Change>();

  constructor(private here: Costs, private json: AgainstJson) {
    this.name = clean(json.name);
    this.totals = json.totals;
    const before = new Map(json.before.map(([node, flops, bytes]) => [node, { flops, bytes }]));
    const sums = (measure: "flops" | "bytes"): Float64Array =>
      running(json.changes.length, (n) => (before.get(n) ?? { [measure]: here.own(measure, n) })[measure] ?? 0);
    this.sums = { flops: sums("flops"), bytes: sums("bytes") };
    this.work = numbers(json.work ?? []);
  }

  /** Take over what a device needed for it before. */
  setDevice(device: DeviceJson | null): void {
    this.sums.time = running(this.work.length, (n) => (device?.before?.[this.work[n]] ?? 0) / 1e6);
  }

  change(node: number): Change {
    return LETTERS[this.json.changes[node]];
  }

  /** What an item cost before in all repetitions: its counterparts, and what is gone from it. */
  was(measure: Compared, item: Interval, apart?: Apart): number {
    const sums = this.sums[measure] as Float64Array;
    const { starts, length } = repetitions(item, apart);
    return starts.reduce((sum, start) => sum + sums[start + length] - sums[start], 0);
  }

  /** By how much it costs more than before: a time in whole nanoseconds, as what is in caches differs. */
  more(measure: Compared, item: Interval, apart?: Apart): number {
    const by = this.here.share(measure, item, apart).total - this.was(measure, item, apart);
    return measure === "time" ? Math.round(by * 1e9) / 1e9 : by;
  }

  /** Forget what depends on the costs of this profile: they have changed. */
  forget(): void {
    this.changes.clear();
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
    const more = this.more("flops", item) || this.more("bytes", item);
    return more ? (more > 0 ? "costlier" : "cheaper") : "changed";
  }
}
