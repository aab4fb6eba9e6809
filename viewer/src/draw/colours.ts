// What colours mean: for each way of colouring, the colour of an item, its legend, and the figure that is
// written on it. A colour never stands alone: the figure or the mark beside it says the same. Marks are those that
// Python has for all views.

import type { Costs, Measure } from "../data/costs";
import type { Difference, Fusion } from "../data/answers";
import { weighedBy } from "../data/costliest";
import type { Mark, MarksJson } from "../data/document";
import type { Graph } from "../data/graph";
import type { Apart, Interval, Item } from "../data/tree";
import * as format from "../format";
import { mix, ramp, type Theme } from "./theme";

export type ColourMode =
  "bottleneck" | "operator" | "flops" | "bytes" | "memory" | "time" | "measured" | "dtype" | "fusion" | "difference";

export const COLOUR_MODES: [ColourMode, string][] = [
  ["bottleneck", "Bottleneck"],
  ["operator", "Operator"],
  ["time", "Predicted time"],
  ["measured", "Measured time"],
  ["flops", "FLOPs"],
  ["bytes", "Bytes moved"],
  ["memory", "Memory made"],
  ["dtype", "dtype"],
  ["fusion", "Fusion"],
  ["difference", "Difference"],
];

export interface Look {
  /** The full colour, as in the legend. */
  colour: string;
  /** The fill of a closed box. */
  fill: string;
  /** What is written on the box. */
  figure: string;
  mark: string;
}

export class Colours {
  /** What differs from another profile, if there is one. */
  difference: Difference | null = null;
  fusion: Fusion | null = null;
  /** The folds whose members are drawn one by one. */
  apart?: Apart;
  private known = new Map<string, Mark>();
  private largest: number | null = null;
  private parts = new Map<number, number>();
  private drawn: Item[] = [];

  constructor(
    readonly graph: Graph, readonly costs: Costs, readonly marks: MarksJson, public mode: ColourMode,
    public theme: Theme,
  ) {}

  /** Forget what depends on the mode, the device or the theme. */
  forget(): void {
    this.parts.clear();
    this.difference?.forget();
    this.largest = null;
  }

  look(item: Item): Look {
    const { theme } = this;
    if (this.mode in MEASURES) {
      const colour = ramp(theme, this.strength(item));
      return { colour, fill: colour, figure: this.figure(item), mark: "" };
    }
    const kind = this.kind(item);
    const colour = theme.dark ? kind.dark : kind.light;
    return {
      colour, fill: mix(theme.card, colour, theme.dark ? 0.16 : 0.1), figure: this.figure(item), mark: kind.sign,
    };
  }

  /** The category of an item in a mode with categories: that of its nodes, the costliest first. */
  kind(item: Item): Mark {
    if (this.mode === "bottleneck") return this.bound(item, this.costs.bound(item));
    if (this.mode === "difference" && this.difference) return this.marks.changes[this.difference.itemChange(item)];
    if (item.node >= 0) return this.nodeKind(item.node);
    const [first] = this.shares(item);
    return first ? first[0] : this.marks.none;
  }

  /** What a node, or all in an interval, wait for. */
  bound(item: Interval, bound = this.costs.boundOf(item)): Mark {
    if (item.first === item.last && this.costs.node("unknown", item.first)) return this.marks.unknown;
    return bound ? this.marks.bounds[bound] : this.marks.none;
  }

  nodeKind(node: number): Mark {
    const { graph } = this;
    if (this.mode === "bottleneck") return this.bound({ first: node, last: node });
    if (this.mode === "difference") return this.marks.changes[this.difference?.change(node) ?? "same"];
    if (this.mode === "dtype") {
      const value = graph.nodes[node].outputs[0] ?? graph.nodes[node].inputs[0];
      return value === undefined ? this.marks.none : this.named(graph.values[value].dtype);
    }
    if (this.mode === "fusion") {
      const part = this.fusion?.at(node);
      if (!part || part.rule === "view" || part.rule === "boundary") return this.marks.none;
      return { ...this.numbered(part.index), label: `subgraph ${part.index + 1}`, sign: String(part.index + 1) };
    }
    let costliest = "";
    let most = -1;
    for (const k of graph.nodes[node].kernels) {
      const kernel = graph.kernels[k];
      if (kernel.cost === "zero") continue;
      const weight = kernel.flops * 1e3 + kernel.other_flops + kernel.read + kernel.written;
      if (weight > most) [most, costliest] = [weight, kernel.category];
    }
    return costliest ? (this.marks.work[costliest] ?? this.named(costliest)) : this.marks.none;
  }

  /** The categories beneath an item with their share of its time (or, without any, of its nodes). */
  shares(item: Item): [Mark, number][] {
    const byKind = new Map<string, [Mark, number]>();
    const timed = this.costs.item("time", item) > 0;
    let whole = 0;
    const step = Math.max(1, Math.floor((item.last - item.first) / 2000));
    for (let i = item.first; i <= item.last; i += step) {
      const weight = timed ? this.costs.node("time", i) : 1;
      if (!weight) continue;
      const kind = this.nodeKind(i);
      const known = byKind.get(kind.label);
      if (known) known[1] += weight;
      else byKind.set(kind.label, [kind, weight]);
      whole += weight;
    }
    const list = [...byKind.values()].sort((a, b) => b[1] - a[1]);
    return list.map(([kind, weight]) => [kind, weight / whole]);
  }

  /** What shares are of: the measure that is shown as a colour, else what things are weighed by. */
  get metric(): Measure {
    return MEASURES[this.mode] ?? weighedBy(this.costs);
  }

  /** The share of the whole that an item has, in all the repetitions that it is drawn for. */
  share(item: Item): number {
    let found = this.parts.get(item.id);
    if (found === undefined) this.parts.set(item.id, (found = this.costs.share(this.metric, item, this.apart).share));
    return found;
  }

  /** For a measure: its name, and the figure at each end of the ramp. */
  scale(): { low: string; high: string } | null {
    if (!(this.mode in MEASURES)) return null;
    const measure = MEASURES[this.mode] as Measure;
    return { low: show(measure, 0), high: show(measure, this.most() * this.costs.total(measure)) };
  }

  /** What is drawn as one box: the measure of costly and cheap. */
  setDrawn(items: Item[]): void {
    this.drawn = items;
    this.largest = null;
    this.parts.clear();
  }

  /** What an item takes in all the repetitions that it is drawn for; bytes where that is no FLOPs. */
  private figure(item: Item): string {
    if (this.mode === "difference" && this.difference) {
      const by = this.difference.more("flops", item, this.apart);
      return by ? `${by > 0 ? "+" : "−"}${format.flops(Math.abs(by))}` : "";
    }
    const { metric } = this;
    const measures: Measure[] = metric === "flops" && !(this.mode in MEASURES) ? [metric, "bytes"] : [metric];
    for (const measure of measures) {
      const { total } = this.costs.share(measure, item, this.apart);
      if (total) return show(measure, total);
    }
    return "";
  }

  /** From nothing (0) to the largest share of what is drawn closed (1), by its square root. */
  private strength(item: Item): number {
    return this.most() > 0 ? Math.sqrt(Math.min(1, this.share(item) / this.most())) : 0;
  }

  private most(): number {
    return (this.largest ??= this.drawn.reduce((most, item) => Math.max(most, this.share(item)), 0));
  }

  /** What has no colour of its own gets one of the spare ones, in the order in which it is seen. */
  private named(name: string): Mark {
    let found = this.known.get(name);
    if (!found) {
      const { spare } = this.marks;
      const sign = name.slice(0, 1).toUpperCase() || "·";
      found = { ...spare[this.known.size % spare.length], label: name, sign };
      this.known.set(name, found);
    }
    return found;
  }

  private numbered(at: number): Mark {
    // Neighbours are told apart; a colour comes back after some subgraphs.
    return this.marks.spare[at % this.marks.spare.length];
  }
}

const MEASURES: Partial<Record<ColourMode, Measure>> = {
  flops: "flops",
  bytes: "bytes",
  memory: "memory",
  time: "time",
  measured: "measured",
};

export function show(measure: Measure, value: number): string {
  if (measure === "time" || measure === "host" || measure === "measured") return format.seconds(value);
  if (measure === "bytes" || measure === "memory") return format.size(value);
  if (measure === "flops" || measure === "otherFlops") return format.flops(value);
  return format.integer(value);
}

// The legend: every category that the graph has, with its nodes.

export interface LegendEntry {
  name: string;
  colour: string;
  mark: string;
  /** Their share of the time, or without a device of the bytes moved. */
  note: string;
  nodes: number[];
}

export function legendEntries(colours: Colours): LegendEntry[] {
  return colours.mode === "fusion" ? rules(colours) : categories(colours);
}

function categories(colours: Colours): LegendEntry[] {
  const { costs, marks, theme } = colours;
  const measure = costs.total("time") ? "time" : "bytes";
  const found = new Map<string, { kind: Mark; nodes: number[]; cost: number }>();
  colours.graph.nodes.forEach((node, i) => {
    if (node.kind === "input" || node.kind === "output") return;
    const kind = colours.nodeKind(i);
    const entry = found.get(kind.label) ?? { kind, nodes: [], cost: 0 };
    entry.nodes.push(i);
    entry.cost += costs.node(measure, i);
    found.set(kind.label, entry);
  });
  const order = (e: { kind: Mark; cost: number }): number => (e.kind === marks.none || e.kind === marks.changes.same ? -1 : e.cost);
  return [...found.values()].sort((a, b) => order(b) - order(a)).map(({ kind, nodes, cost }) => ({
    name: kind.label,
    colour: theme.dark ? kind.dark : kind.light,
    mark: kind.sign,
    note: cost ? `${format.percent(cost / costs.total(measure))} of ${measure === "time" ? costs.timeOf : measure}` : format.plural(nodes.length, "node"),
    nodes,
  }));
}

/** In place of hundreds of subgraphs, the rules that made them; neighbours differ in colour. */
function rules({ fusion, marks, theme }: Colours): LegendEntry[] {
  const found = new Map<string, { count: number; nodes: number[] }>();
  for (const part of fusion?.subgraphs ?? []) {
    if (part.rule === "view" || part.rule === "boundary") continue;
    const entry = found.get(part.rule) ?? { count: 0, nodes: [] };
    entry.count++;
    entry.nodes.push(...part.nodes);
    found.set(part.rule, entry);
  }
  return [...found]
    .sort((a, b) => b[1].count - a[1].count)
    .map(([rule, { count, nodes }]) => {
      const { label: name, sign: mark } = marks.rules[rule] ?? { label: rule, sign: "" };
      return { name, colour: theme.none, mark, note: format.plural(count, "subgraph"), nodes };
    });
}
