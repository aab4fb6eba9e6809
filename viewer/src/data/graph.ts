// A profile in the page: its operator graph, with nodes by position (0-based), values by position, and who makes and
// reads them; and how it was made. A reference that leads nowhere is left out, so that a page always opens.

import { type AgainstJson, clean, filled, type GraphJson, KERNEL, NODE, PARAMETER, type ProfileJson, VALUE } from "./document";

export type Value = typeof VALUE & {
  /** The node that makes it, or -1, and those that read it. */
  producer: number;
  users: number[];
};
export type Node = typeof NODE & {
  index: number;
  /** Where it is called: the file and the line. */
  source: string;
  /** Only in the graph that this one is compared with. */
  removed: boolean;
};
export type Kernel = typeof KERNEL;
export type Parameter = typeof PARAMETER;

export type Model = ReturnType<typeof readModel>;

export function readModel(json: ProfileJson, against?: AgainstJson) {
  const pairs = (record: Record<string, string> = {}): [string, string][] =>
    Object.entries(record).map(([key, value]) => [clean(key), clean(value)]);
  return {
    ...filled({ name: "model", cls: "", notes: [] as string[] }, json.model),
    ...filled({ mode: "infer" }, json),
    target: filled({ name: "cpu" }, json.target).name,
    attempts: (json.tracing ?? []).map((a) => filled({ tracer: "", tensors: "", error: "", seconds: 0 }, a)),
    versions: pairs(json.versions),
    convention: pairs(json.convention),
    graph: new Graph(json.graph ?? {}, against),
  };
}

export class Graph {
  nodes: Node[] = [];
  values: Value[] = [];
  kernels: Kernel[] = [];
  /** The classes of modules, by path. */
  classes = new Map<string, string>();
  parameters: Parameter[] = [];
  parameter = new Map<string, Parameter>();
  storages: { bytes: number; born: number; died: number; node: number }[] = [];
  breaks: { fragment: number; reason: string; source: string }[] = [];
  /** By node, the nodes that make what it reads (or read before), in the order of its inputs, each once. */
  sources: number[][] = [];
  /** What is said of an operator in few characters ("7×7 /2"), by node. */
  details: string[] = [];
  /** How many nodes it has without those that are removed. */
  own = 0;

  constructor(json: GraphJson, against?: AgainstJson) {
    this.kernels = (json.kernels ?? []).map((k) => filled(KERNEL, k));
    for (const s of json.scopes ?? []) {
      const { path, cls } = filled({ path: "", cls: "" }, s);
      this.classes.set(path, cls);
    }
    this.parameters = (json.parameters ?? []).map((p) => filled(PARAMETER, p));
    for (const p of this.parameters) for (const name of [p.name, ...p.tied]) this.parameter.set(name, p);
    this.values = (json.values ?? []).map((v) => ({ ...filled(VALUE, v), producer: -1, users: [] }));
    this.readNodes(json, against);
    const count = this.nodes.length;
    this.storages = (json.storages ?? []).map(([bytes, born, died, node]) => ({
      bytes, born, died: died ?? Infinity, node: node && node >= 1 && node <= count ? node - 1 : -1,
    }));
    this.breaks = (json.breaks ?? []).map((b) => {
      const { fragment, reason, file, line } = filled({ fragment: 0, reason: "", file: "", line: 0 }, b);
      return { fragment, reason, source: source(file, line) };
    });
  }

  private readNodes(json: GraphJson, against?: AgainstJson): void {
    const place = new Map(this.values.map((v, i) => [v.id, i]));
    const known = (ids: number[]): number[] => ids.flatMap((id) => place.get(id) ?? []);
    const former = new Map(against?.former);
    (json.nodes ?? []).forEach((n, index) => {
      const node = filled(NODE, n);
      const read = known(node.inputs);
      const removed = against?.changes[index] === "-";
      const outputs = known(node.outputs);
      this.nodes.push({
        ...node, index, id: against?.ids[index] ?? node.id, source: source(node.file, node.line),
        // What it read before only stands last.
        inputs: read.slice(0, read.length - (former.get(index) ?? 0)), outputs,
        kernels: node.kernels.filter((k) => this.kernels[k]), removed,
      });
      if (!removed) this.own++;
      for (const v of new Set(read)) this.values[v].users.push(index);
      this.sources.push([...new Set(read.map((v) => this.values[v].producer).filter((p) => p >= 0))]);
      for (const v of outputs) if (this.values[v].producer < 0) this.values[v].producer = index;
    });
    // A reader comes after its maker; an edge against the order of execution is none.
    for (const value of this.values) value.users = value.users.filter((user) => user > value.producer);
  }

  /** An interval of nodes in words, by the numbers of those that are not removed. */
  numbers(first: number, last: number): string {
    const ids = this.ids(first, last);
    if (!ids) return "removed";
    return ids[0] === ids[1] ? `node ${ids[0]}` : `nodes ${ids[0]}–${ids[1]}`;
  }

  /** The numbers of the first and the last node of an interval that are not removed; null where all are. */
  ids(first: number, last: number): [number, number] | null {
    const own = this.nodes.slice(first, last + 1).filter((n) => !n.removed);
    return own.length ? [own[0].id, own[own.length - 1].id] : null;
  }

  /** The nodes that read what this node makes. */
  users(index: number): number[] {
    return [...new Set(this.nodes[index].outputs.flatMap((v) => this.values[v].users))];
  }
}

function source(file: string, line: number): string {
  return file && file + (line ? `:${line}` : "");
}
