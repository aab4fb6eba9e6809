// From what is open to what must be laid out: for every open container its drawn children, the edges
// between them, and its ways in and out. Edges of nodes are lifted to the children that hold the nodes.

import { lastOf } from "../data/costs";
import type { Item } from "../data/tree";
import type { Box, Edge, Spec } from "./spec";
import type { View } from "./view";

export const CARD = { w: 212, h: 54 };
export const TERMINAL = { w: 132, h: 30 };

export interface Plan {
  /** What is drawn, and what its state is kept under. */
  item: Item;
  key: Item;
  children: Item[];
  keys: Item[];
  inner: (Plan | null)[];
  edges: Edge[];
  spec: number;
}

/** Gives equal specs equal ids, for as long as the page lives. */
export class Specs {
  private ids = new Map<string, number>();
  private byId: Spec[] = [];

  intern(boxes: Box[], edges: Edge[], ins: number, outs: number, aspect: number, crossing: number): Spec {
    const sizes = boxes.map((b) => (b.spec < 0 ? `${b.w}x${b.h}` : b.spec));
    const ends = edges.map((e) => `${e.from}.${e.fromPort}>${e.to}.${e.toPort}${e.residual ? "r" : ""}`);
    const text = `${ins},${outs},${aspect},${crossing};${sizes.join()};${ends.join()}`;
    const known = this.ids.get(text);
    if (known !== undefined) return this.byId[known];
    const plain = edges.map((edge) => ({ ...edge }));
    const spec = { id: this.byId.length, boxes, edges: plain, ins, outs, aspect, crossing };
    this.ids.set(text, spec.id);
    this.byId.push(spec);
    return spec;
  }
}

/** More ways in or out than this are two: the main one, and a cable of all others. */
const MOST_PORTS = 8;

export class Planner {
  specs: Spec[] = [];
  private used = new Set<number>();

  constructor(private view: View, private known: Specs, private aspect: number) {}

  /** The plan of an open item, whose sources outside are told apart by `portOf`. */
  plan(key: Item, item: Item, ins: number, portOf: (source: number) => number): Plan {
    const { view } = this;
    const body = view.body(key);
    const keys = view.children(body);
    const shown = view.shownBody(key, item);
    const children = shown === body ? keys : view.children(shown);
    const place = placer(keys);
    const outs = new Map<number, number>();
    const leaving: [number, number][] = [];
    const outOf = keys.map((child) => (view.isOpen(child) ? this.waysOut(child) : null));
    const fromPort = (child: number, source: number): number => outOf[child]?.(source) ?? 0;

    const edges = new Map<string, Edge>();
    const join = (from: number, fromPort: number, to: number, residual: boolean): void => {
      const name = `${from}.${fromPort}>${to}`;
      const known = edges.get(name) ?? { from, fromPort, to, toPort: 0, residual };
      edges.set(name, { ...known, residual: known.residual && residual });
    };
    for (let n = body.first; n <= body.last; n++) {
      if (view.hidden[n]) continue;
      const to = place(n);
      for (const s of view.sources[n]) {
        if (s >= body.first) {
          const from = place(s);
          if (from !== to) join(from, fromPort(from, s), to, view.isResidual(s, n));
        } else {
          const port = portOf(s);
          if (port >= 0) join(-1 - port, 0, to, view.isResidual(s, n));
        }
      }
      if (view.lastUser[n] > body.last) {
        if (!outs.has(to)) outs.set(to, outs.size);
        leaving.push([to, n]);
      }
    }
    const ports = Math.min(outs.size, outs.size > MOST_PORTS ? 2 : MOST_PORTS);
    for (const [to, n] of leaving) {
      const residual = !view.shared[n] && view.isResidual(n, view.lastUser[n]);
      join(to, fromPort(to, n), -1 - lastApart(outs.get(to) as number, outs.size), residual);
    }
    const list = [...edges.values()];
    const inner = keys.map(
      (child, i) => (view.isOpen(child) ? this.child(child, children[i], i, list, place, fromPort, body, portOf) : null)
    );
    const boxes = keys.map((child, i) => box(view, child, inner[i]));
    // Inside the model only plain chains are broken into columns: a block with branches reads from top to bottom.
    const crossing = !key.parent || body.kind === "fold" ? 3 : 1;
    const spec = this.known.intern(boxes, list, ins, ports, this.aspect, crossing);
    if (!this.used.has(spec.id)) {
      this.used.add(spec.id);
      this.specs.push(spec);
    }
    return { item, key, children, keys, inner, edges: list, spec: spec.id };
  }

  /** The plan of an open child: every edge that comes in from elsewhere is a way in. */
  private child(
    key: Item, item: Item, at: number, edges: Edge[], place: (n: number) => number,
    fromPort: (child: number, source: number) => number, body: Item, portOf: (source: number) => number,
  ): Plan {
    const ports = new Map<string, number>();
    const inside = this.view.body(key);
    const name = (from: number, port: number): string => `${from}.${port}`;
    const nameOf = (s: number): string => {
      if (s < body.first) return name(-1 - portOf(s), 0);
      const from = place(s);
      return name(from, fromPort(from, s));
    };
    for (let n = inside.first; n <= inside.last; n++) {
      if (this.view.hidden[n]) continue;
      for (const s of this.view.sources[n]) {
        if (s < inside.first && !ports.has(nameOf(s))) ports.set(nameOf(s), ports.size);
      }
    }
    if (ports.size > MOST_PORTS) for (const [name, port] of ports) ports.set(name, Math.min(port, 1));
    for (const edge of edges) {
      if (edge.to === at) edge.toPort = ports.get(name(edge.from, edge.fromPort)) ?? 0;
    }
    const count = Math.max(0, ...[...ports.values()].map((port) => port + 1));
    return this.plan(key, item, count, (s) => ports.get(nameOf(s)) ?? -1);
  }

  /** Through which of its ways out a node's result leaves an open item. */
  private waysOut(key: Item): (source: number) => number {
    const { view } = this;
    const body = view.body(key);
    const place = placer(view.children(body));
    const length = body.last - body.first + 1;
    const ports = new Map<number, number>();
    for (let n = body.first; n <= body.last; n++) {
      if (view.hidden[n] || view.lastUser[n] <= body.last) continue;
      const child = place(n);
      if (!ports.has(child)) ports.set(child, ports.size);
    }
    // In a fold that is open as one, every member leaves as the first does.
    return (source) => lastApart(ports.get(place(body.first + ((source - body.first) % length))) ?? 0, ports.size);
  }
}

/** Of very many ways out, the last, which the result leaves by, is apart from a cable of all others. */
function lastApart(port: number, count: number): number {
  return count <= MOST_PORTS ? port : port === count - 1 ? 1 : 0;
}

function box(view: View, key: Item, inner: Plan | null): Box {
  if (inner) return { w: 0, h: 0, spec: inner.spec };
  const kind = view.graph.nodes[key.node]?.kind;
  return { ...(kind === "input" || kind === "output" ? TERMINAL : CARD), spec: -1 };
}

/** From a node to the position of the child that holds it. */
function placer(children: Item[]): (node: number) => number {
  return (node) => lastOf(children.length, (i) => children[i].first <= node);
}
