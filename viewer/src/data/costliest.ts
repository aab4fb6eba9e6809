// What costs most: the modules that do most themselves, the row that all of them make, and the sentence over the graph.

import * as format from "../format";
import type { Bound, Costs, Measure } from "./costs";
import { clean, type DeviceJson, type HeadlineJson, type PageJson } from "./document";
import type { Model } from "./graph";
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

/** The hot spots that weigh anything, the costliest first. */
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
  return all.filter(({ share }) => share > 0).sort((a, b) => order(b) - order(a)).slice(0, count);
}

/** The nodes of a hot spot, in all repetitions. */
export function nodesOf({ leaves }: HotSpot): number[] {
  return leaves.flatMap((leaf) => repetitions(leaf).starts);
}

/**
 * The whole as a row of folded modules in order, each with its share: the heaviest is opened again and again, while one
 * weighs much of the whole and there is room.
 */
export function inRow(tree: Tree, costs: Costs, measure: Measure, most = 18, heavy = 1 / 3): [Item, number][] {
  const share = (item: Item): number => costs.share(measure, item).share;
  const inside = (item: Item): [Item, number][] =>
    (item.kind === "fold" ? item.children[0] : item).children.map((c) => [c, share(c)]);
  let row = inside(tree.root);
  for (const stuck = new Set<Item>(); ; ) {
    const open = row.filter(([item, part]) => part > heavy && !stuck.has(item) && hasModules(item));
    if (!open.length) return row.filter(([, part]) => part > 0);
    const [heaviest] = open.reduce((a, b) => (b[1] > a[1] ? b : a));
    const parts = inside(heaviest).filter(([, part]) => part > 0);
    if (!parts.length || row.filter(([, part]) => part > 0.002).length + parts.length - 1 > most) stuck.add(heaviest);
    else row = row.flatMap((entry) => (entry[0] === heaviest ? parts : [entry]));
  }
}

/**
 * Whether it, or each member of a fold, consists of more than its own operators: `mm` and `mm_1` say less than the
 * module that they are in.
 */
function hasModules({ kind, children }: Item): boolean {
  return (kind === "fold" ? children[0].children : children).some((child) => child.children.length || child.path);
}

/** The sentence, and what it means; of what does no work there is nothing to be meant. */
export function headline(
  words: HeadlineJson, model: Model, costs: Costs, device: DeviceJson | null, tree: Tree, spots: PageJson["spots"],
): [string, string] {
  const [spot] = hotSpots(spots, tree, costs, weighedBy(costs), 1);
  if (!spot) return [words.idle, ""];
  const timed = costs.total("time") > 0;
  const hosted = Boolean(timed && device?.limit);
  const by = hosted ? new Map([["launch" as Bound, 1]]) : costs.byBound(timed ? "time" : "bytes");
  const [bound, share] = [...by].reduce((a, b) => (b[1] > a[1] ? b : a), ["compute" as Bound, 0]);
  const weight = weighedBy(costs);
  const [time, limit, meaning] = words.words[bound];
  const calls = words.calls.replace("{calls}", format.plural(nodesOf(spot).length, "operator call"));
  const values: Record<string, string> = {
    model: model.name,
    device: device?.name ?? "",
    inputs: words.inputs,
    total: timed && device ? device.said : format.flops(costs.total("flops")),
    share: format.percent(share),
    what: timed ? time : limit,
    limit: device?.limit ?? "",
    spot: spot.path || "the model itself",
    part: `${format.percent(spot.share)} of ${words.of[hosted && weight === "time" ? "hosted" : weight]}${bound === "launch" && !hosted ? calls : ""}`,
  };
  const sentence = words[hosted ? "hosted" : timed ? "timed" : "plain"].replace(/\{(\w+)\}/g, (_, name: string) => values[name]);
  return [sentence, timed ? meaning : words.meaning];
}
