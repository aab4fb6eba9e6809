// Which items are open. A fold is closed, open as one (its members are alike, so one of them stands for
// all), or open with all its members. Inside a fold that is open as one, what is open is remembered for
// the first member and holds for whichever is shown.

import type { Graph } from "../data/graph";
import type { Apart, Item, Tree } from "../data/tree";

export class View {
  open = new Set<number>();
  all = new Set<number>();
  shown = new Map<number, number>();
  /** Folds that show each of their members where they are open: those of single nodes have nothing else to show. */
  readonly apart: Apart = { has: (fold) => this.all.has(fold) || this.single.has(fold) };
  private single: ReadonlySet<number>;
  /** Nodes that are not drawn, by position; edges go through them. */
  hidden: Uint8Array;
  /** By node, the drawn nodes whose results it reads. */
  sources: number[][] = [];
  /** By node, the last drawn node that reads it, or -1. */
  lastUser: Int32Array = new Int32Array(0);
  /** Whether several drawn nodes read what a node makes. */
  shared: Uint8Array = new Uint8Array(0);
  /** Whether a node reads no input of the model, not even through others: it is of weights and constants alone. */
  readonly constant: Uint8Array;
  /** By node what it reads of a residual: what passes unchanged, or what a projection on its way makes. */
  private residuals = new Map<number, number>();
  /** By item how many residuals pass within it, and none of its children, or come from what goes into it. */
  private within = new Map<number, number>();
  private drawnBefore: Int32Array;

  constructor(readonly graph: Graph, readonly tree: Tree) {
    this.hidden = new Uint8Array(graph.nodes.length);
    this.drawnBefore = new Int32Array(graph.nodes.length + 1);
    this.constant = new Uint8Array(graph.nodes.length);
    graph.nodes.forEach(({ kind }, n) => {
      this.constant[n] = Number(kind !== "input" && graph.sources[n].every((s) => s >= n || this.constant[s]));
    });
    const ofNodes = tree.items.filter((i) => i.kind === "fold" && i.children[0].node >= 0);
    this.single = new Set(ofNodes.map((i) => i.id));
    this.hide(this.hidden);
    this.open.add(tree.root.id);
  }

  /** Hide these nodes and let edges pass through them. */
  hide(hidden: Uint8Array): void {
    const { graph } = this;
    const count = graph.nodes.length;
    this.hidden = hidden;
    this.sources = new Array(count);
    this.lastUser = new Int32Array(count).fill(-1);
    this.shared = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      this.drawnBefore[i + 1] = this.drawnBefore[i] + (hidden[i] ? 0 : 1);
      const direct = graph.sources[i];
      const through = direct.some((s) => hidden[s]);
      this.sources[i] = through ? [...new Set(direct.flatMap((s) => (hidden[s] ? this.sources[s] : s)))] : direct;
      if (hidden[i]) continue;
      for (const s of this.sources[i]) {
        this.shared[s] = this.lastUser[s] >= 0 ? 1 : 0;
        this.lastUser[s] = i;
      }
    }
    this.residuals.clear();
    this.within.clear();
    for (const { way, first } of residuals(this)) {
      way.slice(1).forEach((n, i) => this.residuals.set(n, way[i]));
      for (let at: Item | null = this.tree.leaf[way[way.length - 1]]; at; at = at.parent) {
        if (at.node >= 0 || at.first > first) continue;
        this.within.set(at.id, (this.within.get(at.id) ?? 0) + 1);
        if (!at.parent || way[0] >= at.parent.first) break;
      }
    }
  }

  /** Whether what a node reads of another is a residual. */
  isResidual(from: number, to: number): boolean {
    return this.residuals.get(to) === from;
  }

  /** The same for an item that is drawn: of a fold for each of its members. */
  residualsIn({ id, kind, children }: Item): number {
    return this.within.get(kind === "fold" ? children[0].id : id) ?? 0;
  }

  /** How many nodes beneath an item are drawn. */
  drawn(item: Item): number {
    return this.drawnBefore[item.last + 1] - this.drawnBefore[item.first];
  }

  isOpen(key: Item): boolean {
    return this.open.has(key.id) && key.children.length > 0;
  }

  /** What an open item shows: itself, or the first of a fold's members. */
  body(key: Item): Item {
    if (key.kind !== "fold" || this.apart.has(key.id)) return key;
    return key.children[0];
  }

  /** The same for the member that is shown. */
  shownBody(key: Item, item: Item): Item {
    if (this.body(key) === key) return item;
    return item.children[Math.min(this.shown.get(key.id) ?? 0, item.children.length - 1)];
  }

  /** The children of a body that are drawn. */
  children(body: Item): Item[] {
    const some = body.children.filter((c) => this.drawn(c) > 0);
    return some.length === body.children.length ? body.children : some;
  }

  /** Open whatever hides an item, and show the members of folds that it is in. */
  reveal(item: Item): void {
    const path: Item[] = [];
    for (let at: Item | null = item.parent; at; at = at.parent) path.unshift(at);
    let key = this.tree.root;
    for (let i = 0; i < path.length; i++) {
      const actual = path[i];
      if (i > 0) {
        const above = path[i - 1];
        const position = above.children.indexOf(actual);
        const one = above.kind === "fold" && this.body(key) !== key;
        if (one) this.shown.set(key.id, position);
        key = key.children[one ? 0 : position];
        if (one) continue;
      }
      this.open.add(key.id);
    }
    // The item itself may be a member of a fold that is open as one.
    const parent = item.parent;
    if (parent?.kind === "fold" && this.body(key) !== key) this.shown.set(key.id, parent.children.indexOf(item));
  }
}

/** A residual: the nodes on its way, from where it branches off to the addition, and the first node of what it passes. */
interface Residual {
  way: number[];
  first: number;
}

/** So many nodes at most, one after the other, are a projection on the way of a residual. */
const PROJECTION = 3;

/**
 * What passes by a part of the model with weights and is added to what that makes of it. It passes unchanged, or through a
 * projection beside at least twice as many nodes with weights, all in the module that adds. What is added in several places
 * (a bias of positions) is none.
 */
function residuals(view: View): Residual[] {
  const { graph: { nodes }, sources, hidden } = view;
  const adding = nodes.flatMap(({ op }, n) => (!hidden[n] && op === "add" && sources[n].length === 2 ? n : []));
  const added = new Int32Array(nodes.length);
  for (const n of adding) for (const s of sources[n]) added[s]++;
  return adding.flatMap((n) => {
    const [early, late] = sources[n].toSorted((a, b) => a - b);
    return [[early, late], [late, early]].flatMap(([end, made]) => (added[end] > 1 ? [] : residual(view, [end, n], made)))
      .slice(0, 1);
  });
}

/** The residual that ends this way, if what is added to it is made of where it branches off. */
function residual({ graph: { nodes }, tree, sources, constant }: View, way: number[], made: number): Residual[] {
  let block = tree.leaf[way[1]];
  while (block.parent && block.kind !== "module") block = block.parent;
  const weights = (of: Iterable<number>): number => [...of].filter((n) => nodes[n].parameters.length).length;
  for (;;) {
    const [from, ...projection] = way.slice(0, -1);
    const passed = new Set([made]);
    let joined = false;
    for (const at of passed) {
      for (const s of sources[at]) {
        joined ||= s === from;
        if (s > from) passed.add(s);
      }
    }
    const first = Math.min(...projection, ...passed);
    const beside = !projection.length || first >= block.first;
    if (joined && beside && weights(passed) >= Math.max(1, 2 * weights(projection))) return [{ way, first }];
    // What a frozen normalization works out of its buffers is no way into the model.
    const before = sources[from].filter((s) => !constant[s]);
    if (before.length !== 1 || way.length > PROJECTION + 1) return [];
    way = [...before, ...way];
  }
}

const MOST = 40;

/**
 * Open the costliest items until there is as much to see as a person can read at once. Of a training step that is the
 * model going forward: later phases go through the same modules, and stand beneath it with what they take.
 */
export function openReadable(view: View, cost: (item: Item) => number, budget = 26): void {
  view.open = new Set([view.tree.root.id]);
  view.all.clear();
  view.shown.clear();
  const forward = view.tree.root.children.find((c) => c.kind === "phase");
  const weight = (item: Item): number => (item.kind === "phase" && item !== forward ? 0 : cost(item));
  const whole = Math.max(weight(forward ?? view.tree.root), 1e-30);
  let seen = view.children(view.tree.root).length;
  const closed = view.children(view.tree.root).filter((c) => c.children.length);
  while (closed.length) {
    closed.sort((a, b) => weight(b) - weight(a));
    const next = closed.shift() as Item;
    const inside = view.children(view.body(next));
    const share = weight(next) / whole;
    // What is most of it is opened, if any part of it can be seen then.
    const room = share > 0.5 ? MOST : budget;
    if (seen + inside.length - 1 > room || (share < 0.04 && seen > 6)) continue;
    view.open.add(next.id);
    seen += inside.length - 1;
    closed.push(...inside.filter((c) => c.children.length));
  }
}

/** Open or close an item and all that is beneath it. */
export function setDeep(view: View, key: Item, open: boolean): void {
  const stack = [key];
  for (let at = stack.pop(); at; at = stack.pop()) {
    if (!at.children.length) continue;
    if (open) view.open.add(at.id);
    else {
      view.open.delete(at.id);
      view.all.delete(at.id);
    }
    stack.push(...(open ? view.body(at) : at).children);
  }
}
