// Costs by node and, as every item is a stretch of nodes, by item: differences of running sums.

import type { Graph, Parameter } from "./graph";
import type { Item } from "./items";

export type Measure = "flops" | "otherFlops" | "bytes" | "memory" | "time" | "unknown" | "kernels";

export type Bottleneck = "compute-bound" | "balanced" | "memory-bound";

export class Costs {
  private sums: Record<Measure, Float64Array>;
  private profiled: Partial<Record<Measure, Float64Array>> = {};
  private parameterCache = new Map<number, Parameter[]>();

  constructor(private graph: Graph) {
    const { nodes, kernels } = graph;
    const made = new Float64Array(nodes.length);
    for (const s of graph.storages) if (s.node >= 0) made[s.node] += s.bytes;
    const total = (of: (k: (typeof kernels)[number]) => number): Float64Array =>
      running(nodes.length, (i) => nodes[i].kernels.reduce((sum, k) => sum + of(kernels[k]), 0));
    this.sums = {
      flops: total((k) => k.flops),
      otherFlops: total((k) => k.otherFlops),
      bytes: total((k) => k.read + k.written),
      unknown: total((k) => (k.cost === "unknown" ? 1 : 0)),
      kernels: total(() => 1),
      memory: running(nodes.length, (i) => made[i]),
      time: new Float64Array(nodes.length + 1),
    };
  }

  /** Set what every node takes, in seconds. */
  setTime(of: (node: number) => number): void {
    this.sums.time = running(this.graph.nodes.length, of);
  }

  /** Put other values in place of what the profile has, or with null take them back. */
  replace(measure: Measure, values: Float64Array | null): void {
    this.profiled[measure] ??= this.sums[measure];
    const own = this.profiled[measure] as Float64Array;
    this.sums[measure] = values ? running(values.length, (i) => values[i]) : own;
  }

  /** What a node has in the profile, whatever was put in its place. */
  own(measure: Measure, node: number): number {
    const sums = this.profiled[measure] ?? this.sums[measure];
    return sums[node + 1] - sums[node];
  }

  item(measure: Measure, item: Item): number {
    return this.sums[measure][item.last + 1] - this.sums[measure][item.first];
  }

  node(measure: Measure, node: number): number {
    return this.sums[measure][node + 1] - this.sums[measure][node];
  }

  total(measure: Measure): number {
    return this.sums[measure][this.graph.nodes.length];
  }

  /** All FLOPs per byte of traffic; null where nothing is moved. */
  intensity(item: Item): number | null {
    const bytes = this.item("bytes", item);
    return bytes ? (this.item("flops", item) + this.item("otherFlops", item)) / bytes : null;
  }

  /** Parameters and buffers that a module owns or its nodes use, each once. */
  parameters(item: Item): Parameter[] {
    let found = this.parameterCache.get(item.id);
    if (!found) {
      const seen = new Set<Parameter>();
      if (item.kind === "root") this.graph.parameters.forEach((p) => seen.add(p));
      if (item.kind === "module") this.owned(item.path).forEach((p) => seen.add(p));
      for (let i = item.first; i <= item.last; i++) {
        for (const name of this.graph.nodes[i].parameters) {
          const p = this.graph.parameter.get(name);
          if (p) seen.add(p);
        }
      }
      found = [...seen];
      this.parameterCache.set(item.id, found);
    }
    return found;
  }

  parameterCount(item: Item): number {
    return this.parameters(item).reduce((sum, p) => sum + (p.kind === "parameter" ? p.numel : 0), 0);
  }

  private byScope: Parameter[] | null = null;

  private owned(path: string): Parameter[] {
    this.byScope ??= [...this.graph.parameters].sort((a, b) => (a.scope < b.scope ? -1 : a.scope > b.scope ? 1 : 0));
    const all = this.byScope;
    const own = all.slice(lower(all, path), lower(all, path + "\u0000"));
    return own.concat(all.slice(lower(all, path + "."), lower(all, path + "/")));
  }
}

/** The first position whose scope is not before `path` ("/" is the character after "."). */
function lower(sorted: Parameter[], path: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle].scope < path) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function running(count: number, of: (i: number) => number): Float64Array {
  const sums = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) sums[i + 1] = sums[i] + of(i);
  return sums;
}

/** Above twice the ridge point compute-bound, below half of it memory-bound, balanced between. */
export function bottleneck(intensity: number | null, ridge: number): Bottleneck | null {
  if (intensity === null) return null;
  if (intensity > 2 * ridge) return "compute-bound";
  return intensity < ridge / 2 ? "memory-bound" : "balanced";
}
