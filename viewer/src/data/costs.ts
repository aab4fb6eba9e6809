// Costs by node and, as every item is an interval of nodes, by item: differences of running sums. Seconds and what
// they wait for are those that Python predicted; nothing is worked out here but sums and shares.

import type { DeviceJson, PageJson } from "./document";
import type { Graph, Parameter } from "./graph";
import { type Apart, type Interval, type Item, repetitions } from "./tree";

/** Costs, and what must not be overlooked: nodes at which the model failed, seams between fragments, removed nodes. */
export type Measure =
  | "flops" | "otherFlops" | "bytes" | "memory" | "time" | "host" | "measured" | "unknown" | "kernels" | "errors" | "breaks" | "removed";

/** What work waits for: on a device compute, memory or launches; without one its intensity says. */
export type Bound = "compute" | "balanced" | "memory" | "launch" | "exposed" | "bubble";

const BOUNDS: Record<string, Bound> = { c: "compute", m: "memory", l: "launch", e: "exposed", b: "bubble" };

/** A measure of an item: of one repetition, how often it runs, of all together, and their share of the whole. */
export interface Share {
  each: number;
  times: number;
  total: number;
  share: number;
}

export class Costs {
  /** FLOPs per byte at which arithmetic and memory take equally long. */
  ridge = 0;
  /** What is shared out where time is: the run's, or of one that waits for the host the device's alone. */
  timeOf = "time";
  private sums: Record<Measure, Float64Array>;
  private waits: Partial<Record<Bound, Float64Array>> = {};
  private profiled: Partial<Record<Measure, Float64Array>> = {};
  private boundCache = new Map<number, Bound | null>();
  private parameterCache = new Map<number, Parameter[]>();
  /** By path, what a module and those in it own. */
  private owned = new Map<string, Parameter[]>();

  constructor(
    private graph: Graph, private work: number[] = [],
    /** The ridge point without a device, and the parts of one below and above which memory and arithmetic limit. */
    private generic: Pick<PageJson, "ridge" | "balanced" | "measured"> = { ridge: 0, balanced: [0, 0] },
  ) {
    const { nodes, kernels } = graph;
    const made = new Float64Array(nodes.length);
    for (const s of graph.storages) if (s.node >= 0) made[s.node] += s.bytes;
    const broken = new Set(graph.breaks.map(({ fragment }) => fragment));
    const took = new Map(this.generic.measured?.nodes);
    const total = (of: (k: (typeof kernels)[number]) => number): Float64Array =>
      running(nodes.length, (i) => nodes[i].kernels.reduce((sum, k) => sum + of(kernels[k]), 0));
    this.sums = {
      flops: total((k) => k.flops),
      otherFlops: total((k) => k.other_flops),
      bytes: total((k) => k.read + k.written),
      unknown: total((k) => (k.cost === "unknown" ? k.launches : 0)),
      kernels: total((k) => k.launches),
      memory: running(nodes.length, (i) => made[i]),
      time: new Float64Array(nodes.length + 1),
      host: new Float64Array(nodes.length + 1),
      measured: running(nodes.length, (i) => (took.get(i + 1) ?? 0) / 1e6),
      errors: running(nodes.length, (i) => Number(nodes[i].error !== "")),
      breaks: running(nodes.length, (i) => Number(i > 0 && nodes[i].fragment !== nodes[i - 1].fragment &&
        broken.has(nodes[i - 1].fragment))),
      removed: running(nodes.length, (i) => Number(nodes[i].removed)),
    };
    this.setDevice(null);
    for (const p of graph.parameters) {
      for (let path = p.scope; path; path = path.slice(0, Math.max(0, path.lastIndexOf(".")))) {
        this.owned.set(path, [...(this.owned.get(path) ?? []), p]);
      }
    }
  }

  /** Take over what is predicted for a device; without `times`, its ridge point alone. */
  setDevice(device: DeviceJson | null, times = true): void {
    const { work } = this;
    const count = this.graph.nodes.length;
    const queue = (name: keyof DeviceJson["queues"]) => (n: number): number => device && times ? this.queued(device, name, n) : 0;
    const seconds = queue("device");
    this.ridge = (device ?? this.generic).ridge;
    this.timeOf = device?.limit ? "device time" : "time";
    this.boundCache.clear();
    this.sums.time = running(count, seconds);
    this.sums.host = running(count, queue("host"));
    for (const [letter, bound] of Object.entries(BOUNDS)) {
      this.waits[bound] = running(count, (n) => (device?.bounds[work[n]] === letter ? seconds(n) : 0));
    }
  }

  /** The seconds that one of a device's queues needs for a node. */
  queued(device: DeviceJson, queue: keyof DeviceJson["queues"], node: number): number {
    return (device.queues[queue][this.work[node]] ?? 0) / 1e6;
  }

  /** Seconds of an item, in all its repetitions, that go to nodes which wait for this. */
  waiting(bound: Bound, item: Interval): number {
    const sums = this.waits[bound];
    const { starts, length } = repetitions(item);
    return sums ? starts.reduce((sum, start) => sum + sums[start + length] - sums[start], 0) : 0;
  }

  /** What an item waits for in all its repetitions; null where nothing is moved. */
  bound(item: Item): Bound | null {
    let found = this.boundCache.get(item.id);
    if (found === undefined) this.boundCache.set(item.id, (found = this.boundOf(item)));
    return found;
  }

  /** On a device where most of the time goes, without one by intensity against the ridge. */
  boundOf(item: Interval): Bound | null {
    if (this.total("time") > 0) {
      if (!this.item("time", item)) return null;
      return Object.values(BOUNDS).reduce((a, b) => (this.waiting(b, item) > this.waiting(a, item) ? b : a));
    }
    return this.byIntensity(this.intensity(item));
  }

  /** What a fused subgraph of this intensity waits for, as the one kernel that it is. */
  boundOfPart(part: number, intensity: number, device: DeviceJson | null): Bound | null {
    return device && this.total("time") > 0 ? BOUNDS[device.fused[part]] : this.byIntensity(intensity);
  }

  /** Without a device, what FLOPs per byte say against the ridge point. */
  private byIntensity(intensity: number | null): Bound | null {
    if (intensity === null) return null;
    const [low, high] = this.generic.balanced.map((part) => part * this.ridge);
    return intensity > high ? "compute" : intensity < low ? "memory" : "balanced";
  }

  /** The shares of a measure that go to nodes which wait for the same. */
  byBound(measure: Measure): Map<Bound, number> {
    const shares = new Map<Bound, number>();
    const whole = this.total(measure) || 1;
    for (let index = 0; index < this.graph.nodes.length; index++) {
      const bound = this.boundOf({ first: index, last: index });
      if (bound) shares.set(bound, (shares.get(bound) ?? 0) + this.node(measure, index) / whole);
    }
    return shares;
  }

  /** Put other values in place of what the profile has, or with null take them back. */
  replace(measure: Measure, values: number[] | null): void {
    this.profiled[measure] ??= this.sums[measure];
    const own = this.profiled[measure] as Float64Array;
    this.boundCache.clear();
    this.sums[measure] = values ? running(values.length, (i) => values[i]) : own;
  }

  /** What a node has in the profile, whatever was put in its place. */
  own(measure: Measure, node: number): number {
    const sums = this.profiled[measure] ?? this.sums[measure];
    return sums[node + 1] - sums[node];
  }

  item(measure: Measure, item: Interval): number {
    return this.sums[measure][item.last + 1] - this.sums[measure][item.first];
  }

  node(measure: Measure, node: number): number {
    return this.sums[measure][node + 1] - this.sums[measure][node];
  }

  total(measure: Measure): number {
    return this.sums[measure][this.graph.nodes.length];
  }

  /** A measure of an item in all repetitions of the folds around it, but those whose members are `apart`. */
  share(measure: Measure, item: Interval, apart?: Apart): Share {
    const sums = this.sums[measure];
    const { starts, length } = repetitions(item, apart);
    const total = starts.reduce((sum, start) => sum + sums[start + length] - sums[start], 0);
    const whole = this.total(measure);
    return { each: total / starts.length, times: starts.length, total, share: whole ? total / whole : 0 };
  }

  /** All FLOPs per byte of traffic; null where nothing is moved. */
  intensity(item: Interval): number | null {
    const bytes = this.item("bytes", item);
    return bytes ? (this.item("flops", item) + this.item("otherFlops", item)) / bytes : null;
  }

  /** Parameters and buffers that a module owns or its nodes use, each once. */
  parameters(item: Item): Parameter[] {
    let found = this.parameterCache.get(item.id);
    if (!found) {
      const seen = new Set<Parameter>();
      if (item.kind === "root") this.graph.parameters.forEach((p) => seen.add(p));
      if (item.kind === "module") this.owned.get(item.path)?.forEach((p) => seen.add(p));
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
}

/** The last of so many things in order that holds; the first where none does. */
export function lastOf(count: number, holds: (at: number) => boolean): number {
  let [low, high] = [0, count - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (holds(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

export function running(count: number, of: (i: number) => number): Float64Array {
  const sums = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) sums[i + 1] = sums[i] + of(i);
  return sums;
}
