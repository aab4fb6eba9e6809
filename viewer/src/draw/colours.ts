// What colours mean: for each way of colouring, the colour of an item, its legend, and the figure that is
// written on it. A colour never stands alone: the figure or the mark beside it says the same.

import { bottleneck, type Costs, type Measure } from "../data/costs";
import type { Fusion } from "../data/fusion";
import type { Change, Difference } from "../data/difference";
import type { Graph } from "../data/graph";
import type { Item } from "../data/items";
import * as format from "../format";
import { mix, ramp, type Theme } from "./theme";

export type ColourMode = "bottleneck" | "operator" | "flops" | "bytes" | "memory" | "time" | "dtype" | "fusion" | "difference";

export const COLOUR_MODES: [ColourMode, string][] = [
  ["bottleneck", "Bottleneck"],
  ["operator", "Operator"],
  ["time", "Predicted time"],
  ["flops", "FLOPs"],
  ["bytes", "Bytes moved"],
  ["memory", "Memory made"],
  ["dtype", "dtype"],
  ["fusion", "Fusion"],
  ["difference", "Difference"],
];

export interface Category {
  name: string;
  light: string;
  dark: string;
  /** A mark that tells it without colour. */
  mark: string;
}

const category = (name: string, light: string, dark: string, mark: string): Category => ({ name, light, dark, mark });

export const BOUND: Category[] = [
  category("compute-bound", "#d55e00", "#ff9d4d", "▲"),
  category("balanced", "#009e73", "#35c79a", "◆"),
  category("memory-bound", "#0072b2", "#5cb6f2", "●"),
];
export const NOTHING = category("no work", "#b4b8c0", "#5a6270", "·");
export const UNKNOWN = category("unknown cost", "#cc79a7", "#e79fc6", "?");

const CHANGES: Record<Change, Category> = {
  dearer: category("dearer", "#d55e00", "#ff9d4d", "▲"),
  cheaper: category("cheaper", "#0072b2", "#5cb6f2", "▼"),
  added: category("added", "#009e73", "#35c79a", "+"),
  changed: category("changed", "#8e44ad", "#c792ea", "≠"),
  same: category("same", "#b4b8c0", "#5a6270", "="),
};

/** Kinds of work, as kernels name them, in the order of the legend. */
const WORK: Category[] = [
  category("matmul", "#0072b2", "#5cb6f2", "M"),
  category("convolution", "#d55e00", "#ff9d4d", "C"),
  category("attention", "#8e44ad", "#c792ea", "A"),
  category("normalization", "#009e73", "#35c79a", "N"),
  category("elementwise", "#e69f00", "#ffc44d", "+"),
  category("softmax", "#cc79a7", "#e79fc6", "S"),
  category("reduction", "#7a7a00", "#c9c94a", "Σ"),
  category("pooling", "#a0522d", "#d99a73", "P"),
  category("indexing", "#4b5fc4", "#98a7ff", "I"),
  category("recurrent", "#b03060", "#ff8fb5", "R"),
  category("interpolation", "#2f8f8f", "#7fd0d0", "↕"),
  category("copy", "#7f8793", "#9aa3b1", "="),
];
const SPARE = ["#5f6b7a", "#3f7f7f", "#8a6d3b", "#6b4f8a", "#2f6f4f", "#7f3f3f"];

export interface Look {
  /** The full colour, as in the legend. */
  colour: string;
  /** The fill of a closed box. */
  fill: string;
  /** What is written on the box. */
  figure: string;
  mark: string;
}

export interface LegendEntry {
  name: string;
  colour: string;
  mark: string;
  /** How many nodes, and their share of the whole. */
  note: string;
  nodes?: number[];
}

export interface Part {
  colour: string;
  share: number;
}

export class Colours {
  /** What differs from another profile, if there is one. */
  difference: Difference | null = null;
  private categories = new Map<string, Category>();
  private most = new Map<Measure, number>();
  /** Forget what depends on the mode, the device or the theme. */
  forget(): void {
    this.barCache.clear();
    this.most.clear();
  }

  fusion: Fusion | null = null;

  constructor(
    private graph: Graph,
    private costs: Costs,
    public mode: ColourMode,
    public theme: Theme,
    public ridge: number,
  ) {}

  look(item: Item): Look {
    const { theme } = this;
    if (this.mode in MEASURES) {
      const measure = MEASURES[this.mode] as Measure;
      const value = this.costs.item(measure, item);
      const colour = ramp(theme, this.strength(measure, item));
      return { colour, fill: colour, figure: value ? show(measure, value) : "", mark: "" };
    }
    const kind = this.kind(item);
    const colour = theme.dark ? kind.dark : kind.light;
    return { colour, fill: mix(theme.card, colour, theme.dark ? 0.16 : 0.1), figure: this.figure(item), mark: kind.mark };
  }

  /** The category of an item in a mode with categories: that of its nodes, the dearest first. */
  kind(item: Item): Category {
    if (this.mode === "bottleneck") {
      if (item.node >= 0 && this.costs.node("unknown", item.node)) return UNKNOWN;
      const bound = bottleneck(this.costs.intensity(item), this.ridge);
      return BOUND.find((b) => b.name === bound) ?? NOTHING;
    }
    if (this.mode === "difference" && this.difference) return CHANGES[this.difference.itemChange(item)];
    if (item.node >= 0) return this.nodeKind(item.node);
    const [first] = this.shares(item);
    return first ? first[0] : NOTHING;
  }

  /** What bounds a node. */
  bound(node: number): Category {
    if (this.costs.node("unknown", node)) return UNKNOWN;
    const bytes = this.costs.node("bytes", node);
    const work = this.costs.node("flops", node) + this.costs.node("otherFlops", node);
    const bound = bottleneck(bytes ? work / bytes : null, this.ridge);
    return BOUND.find((b) => b.name === bound) ?? NOTHING;
  }

  nodeKind(node: number): Category {
    const { graph } = this;
    if (this.mode === "bottleneck") return this.bound(node);
    if (this.mode === "difference") return CHANGES[this.difference?.change(node) ?? "same"];
    if (this.mode === "dtype") {
      const value = graph.nodes[node].outputs[0] ?? graph.nodes[node].inputs[0];
      return value === undefined ? NOTHING : this.named(graph.values[value].dtype);
    }
    if (this.mode === "fusion") {
      const part = this.fusion?.at(node);
      if (!part || part.rule === "view" || part.rule === "boundary") return NOTHING;
      return { ...this.numbered(part.index), name: `subgraph ${part.index + 1}`, mark: String(part.index + 1) };
    }
    let dearest = "";
    let most = -1;
    for (const k of graph.nodes[node].kernels) {
      const kernel = graph.kernels[k];
      if (kernel.cost === "zero") continue;
      const weight = kernel.flops * 1e3 + kernel.otherFlops + kernel.read + kernel.written;
      if (weight > most) [most, dearest] = [weight, kernel.category];
    }
    return dearest ? this.named(dearest) : NOTHING;
  }

  /** The categories beneath an item with their share of its time (or, without any, of its nodes). */
  shares(item: Item): [Category, number][] {
    const byKind = new Map<string, [Category, number]>();
    const timed = this.costs.item("time", item) > 0;
    let whole = 0;
    const step = Math.max(1, Math.floor((item.last - item.first) / 2000));
    for (let i = item.first; i <= item.last; i += step) {
      const weight = timed ? this.costs.node("time", i) : 1;
      if (!weight) continue;
      const kind = this.nodeKind(i);
      const known = byKind.get(kind.name);
      if (known) known[1] += weight;
      else byKind.set(kind.name, [kind, weight]);
      whole += weight;
    }
    const list = [...byKind.values()].sort((a, b) => b[1] - a[1]);
    return list.map(([kind, weight]) => [kind, weight / whole]);
  }

  private barCache = new Map<number, Part[]>();

  /** The strip of colours along the bottom of a closed module. */
  bar(item: Item): Part[] {
    if (this.mode in MEASURES || this.mode === "fusion") return [];
    let parts = this.barCache.get(item.id);
    if (!parts) {
      parts = this.shares(item)
        .slice(0, 6)
        .map(([kind, share]) => ({ colour: this.theme.dark ? kind.dark : kind.light, share }));
      this.barCache.set(item.id, parts);
    }
    return parts;
  }

  legend(): LegendEntry[] {
    const { graph, theme } = this;
    if (this.mode === "fusion") return this.rules();
    const found = new Map<string, { kind: Category; nodes: number[]; time: number }>();
    graph.nodes.forEach((node, i) => {
      if (node.kind === "input" || node.kind === "output") return;
      const kind = this.nodeKind(i);
      const entry = found.get(kind.name) ?? { kind, nodes: [], time: 0 };
      entry.nodes.push(i);
      entry.time += this.costs.node("time", i);
      found.set(kind.name, entry);
    });
    const whole = this.costs.total("time") || 1;
    const order = (e: { kind: Category; time: number }): number => (e.kind === NOTHING || e.kind === CHANGES.same ? -1 : e.time);
    return [...found.values()]
      .sort((a, b) => order(b) - order(a))
      .slice(0, 14)
      .map(({ kind, nodes, time }) => ({
        name: kind.name,
        colour: theme.dark ? kind.dark : kind.light,
        mark: kind.mark,
        note: time ? `${format.percent(time / whole)} of time` : format.plural(nodes.length, "node"),
        nodes,
      }));
  }

  /** In place of hundreds of subgraphs, the rules that made them; neighbours differ in colour. */
  private rules(): LegendEntry[] {
    const found = new Map<string, { count: number; nodes: number[] }>();
    for (const part of this.fusion?.subgraphs ?? []) {
      if (part.rule === "view" || part.rule === "boundary") continue;
      const entry = found.get(part.rule) ?? { count: 0, nodes: [] };
      entry.count++;
      entry.nodes.push(...part.nodes);
      found.set(part.rule, entry);
    }
    return [...found]
      .sort((a, b) => b[1].count - a[1].count)
      .map(([name, { count, nodes }]) => ({ name, colour: this.theme.none, mark: "", note: format.plural(count, "subgraph"), nodes }));
  }

  /** For a measure: its name, and the figure at each end of the ramp. */
  scale(): { low: string; high: string } | null {
    if (!(this.mode in MEASURES)) return null;
    const measure = MEASURES[this.mode] as Measure;
    return { low: show(measure, 0), high: show(measure, this.dearest(measure)) };
  }

  private drawn: Item[] = [];

  /** What is drawn as one box: the measure of dear and cheap. */
  setDrawn(items: Item[]): void {
    this.drawn = items;
    this.most.clear();
  }

  private flagged = new Map<string, Int32Array>();

  /** How many nodes beneath an item have a flag. */
  private flags(name: string, item: Item, has: (node: number) => boolean): number {
    let before = this.flagged.get(name);
    if (!before) {
      before = new Int32Array(this.graph.nodes.length + 1);
      for (let i = 0; i < this.graph.nodes.length; i++) before[i + 1] = before[i] + (has(i) ? 1 : 0);
      this.flagged.set(name, before);
    }
    return before[item.last + 1] - before[item.first];
  }

  errors(item: Item): number {
    return this.flags("error", item, (i) => this.graph.nodes[i].error !== "");
  }

  unknown(item: Item): number {
    return this.flags("unknown", item, (i) => this.costs.node("unknown", i) > 0);
  }

  /** How many nodes of the other profile are gone from an item. */
  removed(item: Item): number {
    return this.mode === "difference" ? this.difference?.removed(item).length ?? 0 : 0;
  }

  /** Seams between fragments: nodes that begin another fragment than the node before. */
  breaks(item: Item): number {
    const { nodes } = this.graph;
    return this.flags("break", item, (i) => i > 0 && nodes[i].fragment !== nodes[i - 1].fragment);
  }

  private figure(item: Item): string {
    if (this.mode === "difference" && this.difference) {
      const by = this.costs.item("flops", item) - this.difference.was("flops", item);
      return by ? `${by > 0 ? "+" : "−"}${format.flops(Math.abs(by))}` : "";
    }
    const time = this.costs.item("time", item);
    if (time > 0) return format.seconds(time);
    const flops = this.costs.item("flops", item);
    const bytes = this.costs.item("bytes", item);
    return flops ? format.flops(flops) : bytes ? format.size(bytes) : "";
  }

  /** From nothing (0) to the dearest thing that is drawn closed (1), by its square root. */
  private strength(measure: Measure, item: Item): number {
    const most = this.dearest(measure);
    return most > 0 ? Math.sqrt(Math.min(1, this.costs.item(measure, item) / most)) : 0;
  }

  private dearest(measure: Measure): number {
    let most = this.most.get(measure);
    if (most === undefined) {
      most = 0;
      for (const item of this.drawn) most = Math.max(most, this.costs.item(measure, item));
      this.most.set(measure, most);
    }
    return most;
  }

  private named(name: string): Category {
    let found = this.categories.get(name) ?? WORK.find((w) => w.name === name);
    if (!found) {
      const at = this.categories.size;
      const hue = SPARE[at % SPARE.length];
      found = category(name, hue, mix(hue, "#ffffff", 0.4), name.slice(0, 1).toUpperCase() || "·");
    }
    this.categories.set(name, found);
    return found;
  }

  private numbered(at: number): Category {
    // Neighbours are told apart; a colour comes back after seven subgraphs.
    return WORK[at % 7];
  }
}

const MEASURES: Partial<Record<ColourMode, Measure>> = {
  flops: "flops",
  bytes: "bytes",
  memory: "memory",
  time: "time",
};

export function show(measure: Measure, value: number): string {
  if (measure === "time") return format.seconds(value);
  if (measure === "bytes" || measure === "memory") return format.size(value);
  if (measure === "flops" || measure === "otherFlops") return format.flops(value);
  return format.integer(value);
}
