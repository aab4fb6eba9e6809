// What costs most: the modules that do most themselves, and the row that all of them make.

import type { Costs, Measure } from "./costs";
import { clean, type PageJson } from "./document";
import { type Item, repetitions, type Tree } from "./tree";

/** A module by what it computes itself, in all repetitions. */
export interface HotSpot {
  /** Its path, with the ranges of the folds around it. */
  path: string;
  item: Item;
  leaves: Item[];
  share: number;
}

/** What nodes and modules are weighed by where nothing else is chosen: time as measured or predicted, FLOPs, or bytes. */
export function weighedBy(costs: Costs): Measure {
  return (["measured", "time", "flops", "bytes"] as const).find((measure) => costs.total(measure) > 0) ?? "bytes";
}

/** The hot spots that weigh most, costliest first. */
export function hotSpots(
  json: PageJson["spots"], tree: Tree, costs: Costs, measure: Measure, count: number,
): HotSpot[] {
  const known = json.filter(([, ...ids]) => ids.every((id) => tree.items[id as number]));
  const all = known.map(([path, item, ...leaves]): HotSpot => {
    const own = leaves.map((id) => tree.items[id]);
    const share = own.reduce((sum, leaf) => sum + costs.share(measure, leaf).share, 0);
    return { path: clean(path, 2000), item: tree.items[item], leaves: own, share };
  });
  // Shares are differences of running sums: what is equal differs in its last digits, and stays in order.
  const order = ({ share }: HotSpot): number => Math.round(share * 1e9);
  return all.sort((a, b) => order(b) - order(a)).slice(0, count);
}

/** The nodes of a hot spot, in all repetitions. */
export function nodesOf({ leaves }: HotSpot): number[] {
  return leaves.flatMap((leaf) => repetitions(leaf).starts);
}

/**
 * The whole as a row of folded modules in order, each with its share: the heaviest is opened again and again, while one
 * weighs much of the whole and there is room.
 */
export function inRow(tree: Tree, costs: Costs, measure: Measure, most = 18, heavy = 0.12): [Item, number][] {
  const share = (item: Item): number => costs.share(measure, item).share;
  const inside = (item: Item): [Item, number][] =>
    (item.kind === "fold" && item.children[0].node < 0 ? item.children[0] : item).children.map((c) => [c, share(c)]);
  let row = inside(tree.root);
  for (const stuck = new Set<Item>(); ; ) {
    const open = row.filter(([item, part]) => part > heavy && item.children.length && !stuck.has(item));
    if (!open.length) return row.filter(([, part]) => part > 0);
    const [heaviest] = open.reduce((a, b) => (b[1] > a[1] ? b : a));
    const parts = inside(heaviest).filter(([, part]) => part > 0);
    if (!parts.length || row.filter(([, part]) => part > 0.002).length + parts.length - 1 > most) stuck.add(heaviest);
    else row = row.flatMap((entry) => (entry[0] === heaviest ? parts : [entry]));
  }
}
