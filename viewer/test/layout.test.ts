import { describe, expect, test } from "vitest";
import { trace } from "../src/draw/pen";
import { Planner, Specs } from "../src/layout/plan";
import type { Layout } from "../src/layout/spec";
import { type Item, repetitions } from "../src/data/tree";
import { openReadable, setDeep, View } from "../src/layout/view";
import { layoutContainer } from "../src/layout/container";
import { model, NAMES, page, tree } from "./saved";

function view(name: string): View {
  return new View(model(name).graph, tree(name));
}

function layOut(v: View): { layouts: Map<number, Layout>; planner: Planner } {
  const planner = new Planner(v, new Specs(), 1.4);
  planner.plan(v.tree.root, v.tree.root, 0, () => -1);
  const layouts = new Map<number, Layout>();
  for (const spec of planner.specs) layouts.set(spec.id, layoutContainer(spec, (id) => layouts.get(id) as Layout));
  return { layouts, planner };
}

describe.each(NAMES)("the layout of %s, all open", (name) => {
  const v = view(name);
  setDeep(v, v.tree.root, true);
  const { layouts, planner } = layOut(v);

  test("no two boxes overlap, and all are inside", () => {
    for (const layout of layouts.values()) {
      const boxes = Array.from({ length: layout.boxes.length / 4 }, (_, i) => layout.boxes.subarray(i * 4, i * 4 + 4));
      boxes.forEach(([x, y, w, h], i) => {
        expect(x).toBeGreaterThanOrEqual(0);
        expect(x + w).toBeLessThanOrEqual(layout.w);
        expect(y + h).toBeLessThanOrEqual(layout.h);
        for (const [ox, oy, ow, oh] of boxes.slice(i + 1)) {
          expect(x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y).toBe(true);
        }
      });
    }
  });

  test("edges begin and end on the rims of their boxes", () => {
    for (const spec of planner.specs) {
      const layout = layouts.get(spec.id) as Layout;
      spec.edges.forEach((edge, i) => {
        const points = layout.edges[i];
        const [x, y] = points.subarray(points.length - 2);
        if (edge.to < 0) return;
        const [bx, by, bw] = layout.boxes.subarray(edge.to * 4, edge.to * 4 + 4);
        expect(Math.abs(y - by)).toBeLessThan(0.01);
        expect(x).toBeGreaterThanOrEqual(bx);
        expect(x).toBeLessThanOrEqual(bx + bw);
      });
    }
  });
});

test("layers of equal structure are laid out once", () => {
  const v = view("bert-base-uncased");
  for (const item of v.tree.items) if (item.kind === "fold") v.all.add(item.id);
  setDeep(v, v.tree.root, true);
  const layers = v.tree.items.filter((i) => i.cls.endsWith("BertLayer") && i.kind === "module");
  expect(layers).toHaveLength(12);
  const { planner } = layOut(v);
  expect(planner.specs.length).toBeLessThan(30);
});

test.each(NAMES)("%s opens to what a person can read", (name) => {
  const v = view(name);
  v.hide(Uint8Array.from(page(name).plumbing, Number));
  openReadable(v, (item) => item.last - item.first);
  const planner = new Planner(v, new Specs(), 1.4);
  const plan = planner.plan(v.tree.root, v.tree.root, 0, () => -1);
  const count = (p: typeof plan): number => p.children.length + p.inner.reduce((sum, i) => sum + (i ? count(i) : 0), 0);
  expect(count(plan)).toBeGreaterThan(4);
  expect(count(plan)).toBeLessThan(40);
});

test("an edge is drawn to its end, and what two edges share once", () => {
  const seen = new Set<string>();
  expect(trace(Float32Array.of(0, 0, 10, 20, 10, 40), seen)).toBe("M0,0C0,10 10,10 10,20L10,40");
  expect(trace(Float32Array.of(0, 0, 10, 20, 10, 40), seen)).toBe("");
});

test("a residual is what passes by weights and is added to what they make of it", () => {
  const within = (name: string, cls: string): Record<string, number> => {
    const v = view(name);
    v.hide(Uint8Array.from(page(name).plumbing, Number));
    const modules = v.tree.items.filter((i) => i.kind === "module" && i.cls.endsWith(cls));
    return Object.fromEntries(modules.map((i) => [i.path, v.residualsIn(i)]));
  };
  // Unchanged, or through a convolution and a normalization beside twice as many.
  const blocks = within("resnet18", "BasicBlock");
  expect(Object.keys(blocks)).toHaveLength(8);
  expect(new Set(Object.values(blocks))).toEqual(new Set([1]));
  expect(within("resnet18", "Sequential")["layer2.0.downsample"]).toBe(0);
  // Its attention adds what goes in, and its output what the attention made. Embeddings of positions are no residual.
  expect(new Set(Object.values(within("bert-base-uncased", "BertLayer")))).toEqual(new Set([2]));
  expect(within("bert-base-uncased", "BertEmbeddings")).toEqual({ embeddings: 0 });
  const v = view("bert-base-uncased");
  v.hide(Uint8Array.from(page("bert-base-uncased").plumbing, Number));
  setDeep(v, v.tree.root, true);
  const drawn = layOut(v).planner.specs.flatMap((spec) => spec.edges).filter((edge) => edge.residual);
  expect(drawn.length).toBeGreaterThan(1);
});

test("showing an item opens what hides it, and the fold shows its member", () => {
  const v = view("bert-base-uncased");
  const item = v.tree.items.find((i) => i.path === "encoder.layer.7.output.dense");
  if (!item) throw new Error("there is no such item");
  v.reveal(item);
  const planner = new Planner(v, new Specs(), 1.4);
  const plan = planner.plan(v.tree.root, v.tree.root, 0, () => -1);
  const all = (p: typeof plan): string[] => p.children.flatMap((c, i) => [c.path, ...(p.inner[i] ? all(p.inner[i]) : [])]);
  expect(all(plan)).toContain("encoder.layer.7.output.dense");
});

test("members of a fold that are drawn one by one have their own share", () => {
  const of = (name: string, nodes: boolean): Item => {
    const item = tree(name).items.find((i) => i.kind === "fold" && i.children[0].node >= 0 === nodes);
    return item as Item;
  };
  const layers = of("bert-base-uncased", false);
  const v = view("bert-base-uncased");
  expect(v.apart.has(layers.id)).toBe(false);
  expect(repetitions(layers.children[3], v.apart).starts).toHaveLength(layers.count);
  v.all = new Set([layers.id]);
  expect(repetitions(layers.children[3], v.apart).starts).toEqual([layers.children[3].first]);
  // Single nodes have nothing to show but all of them, and are drawn so wherever they are open.
  const name = NAMES.find((n) => of(n, true)) as string;
  const single = of(name, true);
  expect(repetitions(single.children[0], view(name).apart).starts).toEqual([single.children[0].first]);
});
