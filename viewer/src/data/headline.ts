// The sentence over the graph, in the words that Python gives and with the figures of the device that is chosen.

import * as format from "../format";
import { hotSpots, weighedBy } from "./costliest";
import type { Bound, Costs } from "./costs";
import type { DeviceJson, HeadlineJson, PageJson } from "./document";
import type { Model } from "./model";
import type { Tree } from "./tree";

/** The sentence, and what it means; both empty where nothing is moved. */
export function headline(
  words: HeadlineJson, model: Model, costs: Costs, device: DeviceJson | null, tree: Tree, spots: PageJson["spots"],
): [string, string] {
  const [spot] = hotSpots(spots, tree, costs, weighedBy(costs), 1);
  if (!spot) return ["", ""];
  const timed = costs.total("time") > 0;
  const by = costs.byBound(timed ? "time" : "bytes");
  const [bound, share] = [...by].reduce((a, b) => (b[1] > a[1] ? b : a), ["compute" as Bound, 0]);
  const [time, limit, meaning] = words.words[bound];
  const values: Record<string, string> = {
    model: model.name,
    device: device?.name ?? "",
    inputs: words.inputs,
    total: timed ? (device?.said ?? format.seconds(costs.total("time"))) : format.flops(costs.total("flops")),
    share: format.percent(share),
    what: timed ? time : limit,
    spot: spot.path || "the model itself",
    part: `${format.percent(spot.share)} of ${words.of[weighedBy(costs)]}`,
  };
  const sentence = (timed ? words.timed : words.plain).replace(/\{(\w+)\}/g, (_, name: string) => values[name]);
  return [sentence, timed ? meaning : words.meaning];
}
