import { describe, expect, test } from "vitest";
import { Costs } from "../src/data/costs";
import { buildTree, type Item, walk } from "../src/data/items";
import { model, NAMES, saved } from "./saved";

describe.each(NAMES)("the tree of %s", (name) => {
  const { graph } = model(name);
  const tree = buildTree(graph);

  test("has every node once, in order", () => {
    const seen: number[] = [];
    walk(tree.root, (item) => {
      if (item.node >= 0) seen.push(item.node);
    });
    expect(seen).toEqual(graph.nodes.map((n) => n.index));
  });

  test("children fill their parent's stretch", () => {
    walk(tree.root, (item) => {
      let next = item.first;
      for (const child of item.children) {
        expect(child.first).toBe(next);
        expect(child.parent).toBe(item);
        next = child.last + 1;
      }
      if (item.children.length) expect(next).toBe(item.last + 1);
    });
  });

  test("costs add up to the totals that Python wrote", () => {
    const costs = new Costs(graph);
    const totals = saved(name).totals as Record<string, number>;
    expect(costs.total("flops")).toBe(totals.flops);
    expect(costs.item("otherFlops", tree.root)).toBe(totals.other_flops);
    expect(costs.total("bytes")).toBe(totals.bytes_read + totals.bytes_written);
    expect(costs.parameterCount(tree.root)).toBe(totals.parameters);
  });
});

function folds(name: string): [string, number][] {
  const found: [string, number][] = [];
  const tree = buildTree(model(name).graph);
  walk(tree.root, (item: Item) => {
    if (item.kind === "fold") found.push([`${item.parent?.path}.${item.label}`, item.children.length]);
    // The members are alike: what is in the first is in all.
    return item.parent?.kind !== "fold" || item === item.parent.children[0];
  });
  return found;
}

test("layers that repeat are folded, projections side by side are not", () => {
  expect(folds("bert-base-uncased")).toEqual([["encoder.layer.0–11", 12]]);
  expect(folds("gpt2")).toEqual([[".h.0–11", 12]]);
  expect(folds("resnet18")).toEqual([["layer1.0–1", 2]]);
});

test("a module that is called twice stands twice", () => {
  const tree = buildTree(model("resnet18").graph);
  const relu = tree.items.filter((i) => i.path === "layer2.0.relu");
  expect(relu.map((i) => i.call)).toEqual([1, 2]);
});
