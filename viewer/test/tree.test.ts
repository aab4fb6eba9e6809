import { describe, expect, test } from "vitest";
import { Costs } from "../src/data/costs";
import { inRow } from "../src/data/costliest";
import { numbers } from "../src/data/document";
import { Graph } from "../src/data/graph";
import { type Item, repetitions } from "../src/data/tree";
import { model, NAMES, page, saved, tree } from "./saved";

function named(name: string, path: string): Item {
  const found = tree(name).items.find((i) => i.path === path && i.kind !== "fold");
  if (!found) throw new Error(`${name} has no ${path}`);
  return found;
}

describe.each(NAMES)("the tree of %s", (name) => {
  const { graph } = model(name);
  const { items, leaf, root } = tree(name);

  test("has every node once, in order", () => {
    expect(leaf.map((i) => i.node)).toEqual(graph.nodes.map((n) => n.index));
    expect(items.filter((i) => i.node >= 0)).toHaveLength(graph.nodes.length);
  });

  test("children fill their parent's interval", () => {
    for (const item of items) {
      let next = item.first;
      for (const child of item.children) {
        expect(child.first).toBe(next);
        expect(child.parent).toBe(item);
        next = child.last + 1;
      }
      if (item.children.length) expect(next).toBe(item.last + 1);
    }
  });

  test("costs add up to the totals that Python wrote", () => {
    const costs = new Costs(graph);
    const totals = saved(name).totals as Record<string, number>;
    expect(costs.total("flops")).toBe(totals.flops);
    expect(costs.item("otherFlops", root)).toBe(totals.other_flops);
    expect(costs.total("bytes")).toBe(totals.bytes_read + totals.bytes_written);
    expect(costs.parameterCount(root)).toBe(totals.parameters);
  });

  test("the members of a fold cost the same, place by place", () => {
    const costs = new Costs(graph);
    for (const item of items) {
      const { starts, length } = repetitions(item);
      const flops = starts.map((first) => costs.item("flops", { first, last: first + length - 1 }));
      expect(new Set(flops).size).toBe(1);
    }
  });
});

test("a module in a fold says what it takes each, how often it stands, and its share of the whole", () => {
  const costs = new Costs(model("gpt2").graph);
  const { each, times, total, share } = costs.share("flops", named("gpt2", "h.3.mlp"));
  expect([times, total]).toEqual([12, each * 12]);
  expect(share).toBeCloseTo(total / costs.total("flops"), 12);
  expect(costs.share("flops", named("gpt2", "h.0.mlp"))).toEqual(costs.share("flops", named("gpt2", "h.11.mlp")));
});

test("a graph break is where one is recorded, not where the inputs end", () => {
  const nodes = [0, 1, 1, 2].map((fragment, at) => ({ id: at + 1, op: "add", fragment }));
  const breaks = (found: number[]): number =>
    new Costs(new Graph({ nodes, breaks: found.map((fragment) => ({ fragment })) })).total("breaks");
  expect([breaks([]), breaks([1])]).toEqual([0, 1]);
});

test("a module that is called twice stands twice", () => {
  const relu = tree("resnet18").items.filter((i) => i.path === "layer2.0.relu");
  expect(relu.map((i) => i.call)).toEqual([1, 2]);
});

test("on a device, an item waits for what takes most of its time", () => {
  const { work, devices } = page("gpt2");
  const costs = new Costs(model("gpt2").graph, numbers(work), page("gpt2"));
  const { root } = tree("gpt2");
  expect([costs.ridge, costs.total("time")]).toEqual([10, 0]);
  costs.setDevice(devices[0]);
  expect(costs.ridge).toBe(devices[0].ridge);
  const shares = (["compute", "memory", "launch"] as const).map((b) => costs.waiting(b, root) / costs.total("time"));
  expect(shares.reduce((a, b) => a + b)).toBeCloseTo(1, 9);
  expect(shares.indexOf(Math.max(...shares))).toBe(["compute", "memory", "launch"].indexOf(costs.bound(root) as string));
});

test("in the row a fold of single nodes is one part, and not each of them with the share of all", () => {
  const name = NAMES.find((n) => tree(n).items.some((i) => i.kind === "fold" && i.children[0].node >= 0)) as string;
  const { root, items, leaf } = tree(name);
  const fold = items.find((i) => i.kind === "fold" && i.children[0].node >= 0) as Item;
  const row = inRow({ root: { ...root, children: [fold] }, items, leaf }, new Costs(model(name).graph), "bytes", 18, 0);
  expect(row.map(([item]) => item)).toEqual([fold]);
});
