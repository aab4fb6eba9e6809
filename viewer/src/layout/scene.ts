// The laid-out picture: a tree of boxes with absolute places. The points of edges stay relative to their container, since
// equal containers share them, and each container is laid out once, a few at a time so that the page stays alive meanwhile.

import type { Item } from "../data/tree";
import { layoutContainer } from "./container";
import { type Plan, Planner, Specs } from "./plan";
import { type Edge, HEADER, type Layout, type Rect } from "./spec";
import type { View } from "./view";

export interface Box extends Rect {
  item: Item;
  /** What its state is kept under: `item`, or its twin in the first member of a fold. */
  key: Item;
  /** For an open fold that shows one member, that member; else the item. */
  shown: Item;
  depth: number;
  /** How many residuals pass within it. */
  residuals: number;
  parent: Box | null;
  children: Box[];
  edges: Edge[];
  layout: Layout | null;
}

export interface Scene {
  root: Box;
  /** What is drawn: all of the root but its header. */
  bounds: Rect;
  /** Every box but the root, containers before what they hold. */
  boxes: Box[];
  /** The box that stands for an item: its own, or that of the closed item it is in. */
  find: (item: Item) => Box;
}

/** Milliseconds of laying out after which others have their turn. */
const TURN = 40;

export class SceneMaker {
  private specs = new Specs();
  private layouts = new Map<number, Layout>();

  async make(view: View, aspect: number): Promise<Scene> {
    const planner = new Planner(view, this.specs, aspect);
    const { root } = view.tree;
    const plan = planner.plan(root, root, 0, () => -1);
    let began = performance.now();
    // Inner ones stand before those that hold them.
    for (const spec of planner.specs) {
      if (this.layouts.has(spec.id)) continue;
      this.layouts.set(spec.id, layoutContainer(spec, (id) => this.layouts.get(id) as Layout));
      if (performance.now() - began < TURN) continue;
      await new Promise((done) => setTimeout(done));
      began = performance.now();
    }
    return this.compose(view, plan);
  }

  private compose(view: View, plan: Plan): Scene {
    const boxes: Box[] = [];
    const byItem = new Map<number, Box>();
    const make = (
      p: Plan | null, item: Item, key: Item, x: number, y: number, w: number, h: number, parent: Box | null,
    ): Box => {
      const layout = p ? this.layouts.get(p.spec) ?? null : null;
      const shown = p ? view.shownBody(key, item) : item;
      const box: Box = {
        item, key, shown, x, y, w, h, parent, depth: parent ? parent.depth + 1 : 0,
        residuals: view.residualsIn(shown),
        children: [], edges: p && layout ? p.edges : [], layout,
      };
      if (parent) boxes.push(box);
      byItem.set(item.id, box);
      byItem.set(shown.id, box);
      if (p && layout) {
        box.children = p.children.map((child, i) => {
          const [cx, cy, cw, ch] = layout.boxes.subarray(i * 4, i * 4 + 4);
          return make(p.inner[i], child, p.keys[i], x + cx, y + cy, cw, ch, box);
        });
      }
      return box;
    };
    const whole = this.layouts.get(plan.spec);
    const { w, h } = whole ?? { w: 0, h: HEADER };
    const root = make(plan, plan.item, plan.key, 0, -HEADER, w, h, null);
    const find = (item: Item): Box => {
      for (let at: Item | null = item; at; at = at.parent) {
        const box = byItem.get(at.id);
        if (box) return box;
      }
      return root;
    };
    return { root, bounds: { x: 0, y: 0, w, h: h - HEADER }, boxes, find };
  }
}

/** One thing at a time: all that is asked for while something runs is done once, when that has ended. */
export class Queue {
  private running: Promise<void> | null = null;
  private next: Promise<void> | null = null;
  private job: () => Promise<void> = async () => {};

  run(job: () => Promise<void>): Promise<void> {
    this.job = job;
    if (!this.running) return (this.running = job().finally(() => (this.running = null)));
    const go = (): Promise<void> => {
      this.next = null;
      return this.run(this.job);
    };
    return (this.next ??= this.running.then(go, go));
  }
}
