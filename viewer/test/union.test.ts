import { expect, test } from "vitest";
import type { AgainstJson } from "../src/data/document";
import type { Graph } from "../src/data/graph";
import { readModel } from "../src/data/model";
import { united } from "../src/data/union";
import { saved } from "./saved";

function resnet(removed: AgainstJson["removed"], without: number[] = []): Graph {
  const profile = saved("resnet18");
  const before = (profile.graph.nodes ?? []).map((_, i) => (without.includes(i + 1) ? 0 : i + 1));
  const page = united({ profile, against: { profile: saved("resnet18"), before, removed } });
  return readModel(page.profile).graph;
}

test("what is gone stands between what it read and what read it", () => {
  // As if the third node, a batch norm, had been replaced by another.
  const graph = resnet([[3, "", 3]], [3]);
  expect(graph.own).toBe(71);
  expect(graph.broken).toBe(0);
  const at = graph.nodes.findIndex((n) => n.removed);
  const names = (nodes: number[]): string[] => nodes.map((n) => graph.nodes[n].name);
  expect(names(graph.sources[at])).toEqual(["conv1"]);
  expect(names(graph.users(at))).toEqual(["relu"]);
  expect(graph.nodes.map((n) => n.id).filter((id, i) => id !== (i < 3 ? i + 1 : i))).toEqual([]);
  expect(graph.ids(at, at)).toBeNull();
  expect(graph.numbers(at - 1, at + 1)).toBe("nodes 2–3");
});

test.each([[[99_999, "", 3]], [[3, "", Number.NaN]], [[3, "a.b.c", -5]], [["3", "", 1]]])("a list that makes no sense does no harm: %j", (entry) => {
  const graph = resnet([entry as [number, string, number]]);
  expect(graph.own).toBe(71);
  expect(graph.nodes.filter((n) => n.removed).length).toBeLessThanOrEqual(1);
});
