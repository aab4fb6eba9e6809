// The operator graph in the page: nodes by position (0-based), values by position, and who makes and
// reads them. What does not fit together in a file is left out and counted, so that the page always opens.

import {
  type AgainstJson, clean, type GraphJson, type KernelJson, type NodeJson, type ParameterJson, type ValueJson,
} from "./document";

export type Value = ReturnType<typeof readValue>;
export type Node = ReturnType<typeof readNode> & {
  index: number;
  /** As a person sees it: its number in its own graph, from 1. */
  id: number;
  inputs: number[];
  outputs: number[];
  kernels: number[];
  /** Only in the graph that this one is compared with, and whether it did some work there. */
  removed: boolean;
  worked: boolean;
};
export type Kernel = ReturnType<typeof readKernel>;
export type Parameter = ReturnType<typeof readParameter>;
type Storage = { bytes: number; born: number; died: number; node: number };
type Break = { fragment: number; reason: string; source: string };

export class Graph {
  nodes: Node[] = [];
  values: Value[] = [];
  kernels: Kernel[] = [];
  /** The classes of modules, by path. */
  classes = new Map<string, string>();
  parameters: Parameter[] = [];
  parameter = new Map<string, Parameter>();
  storages: Storage[] = [];
  breaks: Break[] = [];
  /** By node, the values that it reads, and those that it read before. */
  private reads: number[][] = [];
  /** By node, the nodes that make what it reads, in the order of its inputs, each once. */
  sources: number[][] = [];
  /** Kernels before node i ran: `kernelStart[i]`; one more entry for the end. */
  kernelStart: Float64Array;
  /** What is said of an operator in few characters ("7×7 /2"), by node. */
  details: string[] = [];
  /** How many nodes it has without those that are removed. */
  own = 0;
  /** How many references in the file led nowhere. */
  broken = 0;

  constructor(json: GraphJson, against?: AgainstJson) {
    this.kernels = list(json.kernels).map(readKernel);
    for (const s of list(json.scopes)) this.classes.set(clean(s.path, 2000), clean(s.cls));
    this.parameters = list(json.parameters).map(readParameter);
    for (const p of this.parameters) for (const name of [p.name, ...p.tied]) this.parameter.set(name, p);
    const place = new Map<number, number>();
    for (const v of list(json.values)) {
      place.set(v.id, this.values.length);
      this.values.push(readValue(v));
    }
    this.readNodes(json, place, against);
    const count = this.nodes.length;
    this.storages = list(json.storages).map(([bytes, born, died, node]) => ({
      bytes: number(bytes),
      born: number(born),
      died: died ?? Infinity,
      node: node && node >= 1 && node <= count ? node - 1 : -1,
    }));
    this.breaks = list(json.breaks).map((b) => ({
      fragment: number(b.fragment),
      reason: clean(b.reason, 2000),
      source: source(b.file, b.line),
    }));
    this.kernelStart = new Float64Array(count + 1);
    this.nodes.forEach((n, i) => (this.kernelStart[i + 1] = this.kernelStart[i] + n.kernels.length));
  }

  private readNodes(json: GraphJson, place: Map<number, number>, against?: AgainstJson): void {
    const known = (ids: number[] | undefined): number[] => {
      const found = list(ids).map((id) => place.get(id) ?? -1).filter((v) => v >= 0);
      this.broken += list(ids).length - found.length;
      return found;
    };
    const former = new Map(against?.former);
    const idle = new Set(against?.idle);
    list(json.nodes).forEach((n, index) => {
      const read = known(n.inputs);
      const removed = against?.changes[index] === "-";
      const kernels = list(n.kernels).filter((k) => this.kernels[k] !== undefined);
      this.broken += list(n.kernels).length - kernels.length;
      const node: Node = {
        ...readNode(n),
        index,
        id: against?.ids[index] ?? n.id,
        inputs: read.slice(0, read.length - (former.get(index) ?? 0)),
        outputs: known(n.outputs),
        kernels,
        removed,
        worked: !idle.has(index),
      };
      if (!node.removed) this.own++;
      this.reads.push(read);
      for (const v of new Set(read)) this.values[v].users.push(index);
      for (const v of node.outputs) {
        if (this.values[v].producer < 0) this.values[v].producer = index;
        else this.broken += 1;
      }
      this.nodes.push(node);
    });
    // A reader must come after its maker; an edge against the order of execution is dropped.
    for (const value of this.values) {
      const after = value.users.filter((user) => user > value.producer);
      this.broken += value.users.length - after.length;
      value.users = after;
    }
    this.sources = this.nodes.map((node, i) => {
      const made = this.reads[i].map((v) => this.values[v].producer);
      return [...new Set(made)].filter((p) => p >= 0 && p < node.index);
    });
  }

  /** An interval of nodes in words, by the numbers of those that are not removed. */
  numbers(first: number, last: number): string {
    const ids = this.ids(first, last);
    if (!ids) return "removed";
    return ids[0] === ids[1] ? `node ${ids[0]}` : `nodes ${ids[0]}–${ids[1]}`;
  }

  /** The numbers of the first and the last node of an interval that are not removed; null where all are. */
  ids(first: number, last: number): [number, number] | null {
    let [from, to] = [first, last];
    while (from <= to && this.nodes[from].removed) from++;
    while (to >= from && this.nodes[to].removed) to--;
    return from <= to ? [this.nodes[from].id, this.nodes[to].id] : null;
  }

  /** The nodes that read what this node makes. */
  users(index: number): number[] {
    return [...new Set(this.nodes[index].outputs.flatMap((v) => this.values[v].users))];
  }
}

function readValue(v: ValueJson) {
  return {
    id: v.id,
    shape: list(v.shape).map((d) => (typeof d === "number" ? d : clean(d, 40))),
    dtype: clean(v.dtype, 40),
    bytes: number(v.bytes),
    kind: v.kind ?? "activation",
    name: clean(v.name),
    /** The node that makes it, or -1, and those that read it. */
    producer: -1,
    users: [] as number[],
  };
}

function readNode(n: NodeJson) {
  return {
    kind: n.kind,
    op: clean(n.op, 120),
    name: clean(n.name, 200),
    scope: clean(n.scope, 2000),
    target: clean(n.target),
    arguments: clean(n.arguments, 1000),
    parameters: list(n.parameters).map((p) => clean(p, 500)),
    source: source(n.file, n.line),
    fragment: number(n.fragment),
    phase: clean(n.phase ?? "forward", 40),
    error: clean(n.error, 2000),
  };
}

function readKernel(k: KernelJson) {
  return {
    op: clean(k.op),
    category: clean(k.category ?? "other", 40),
    dtype: clean(k.dtype, 40),
    flops: number(k.flops),
    otherFlops: number(k.other_flops),
    read: number(k.read),
    written: number(k.written),
    cost: k.cost ?? "formula",
    launches: number(k.launches ?? 1),
  };
}

function readParameter(p: ParameterJson) {
  return {
    name: clean(p.name, 500),
    shape: list(p.shape),
    dtype: clean(p.dtype, 40),
    numel: number(p.numel),
    bytes: number(p.bytes),
    scope: clean(p.scope, 2000),
    kind: p.kind ?? "parameter",
    tied: list(p.tied).map((t) => clean(t, 500)),
  };
}

function source(file: string | null | undefined, line: number | null | undefined): string {
  return file ? clean(file, 500) + (line ? `:${line}` : "") : "";
}

export function list<T>(items: T[] | undefined | null): T[] {
  return Array.isArray(items) ? items : [];
}

export function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
