// The note beside the pointer: what a box is, and what it costs, without a click.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import type { Item } from "../data/tree";
import * as format from "../format";
import { div, fill, h } from "./dom";
import { shareText } from "./parts";

/** Milliseconds that the pointer rests before anything is said. */
const REST = 180;

export function hoverCard(app: App): HTMLElement {
  const element = h("div", { class: "tip hover", hidden: true });
  let rest = 0;
  app.on("hover", () => {
    clearTimeout(rest);
    element.hidden = true;
    const { hovered, pointer } = app;
    if (!hovered || !pointer) return;
    rest = window.setTimeout(() => {
      const [first, ...lines] = said(app, hovered.item);
      fill(element, h("b", null, first), ...lines.map((line) => div("", line)));
      element.hidden = false;
      const { width, height } = app.size;
      const { offsetWidth: w, offsetHeight: tall } = element;
      const right = pointer.x + 16 + w < width ? pointer.x + 16 : Math.max(4, pointer.x - 16 - w);
      element.style.left = `${right}px`;
      element.style.top = `${Math.max(4, Math.min(pointer.y + 12, height - tall - 4))}px`;
    }, REST);
  });
  app.on("camera", () => (element.hidden = true));
  return element;
}

/** Path, class, shapes, what it costs and its share, what it waits for, and where it is called. */
function said(app: App, item: Item): string[] {
  const { costs, colours, model: { graph } } = app;
  const node = graph.nodes[item.node];
  const shapes = (values: number[]): string =>
    values.map((v) => graph.values[v]).filter((v) => v.kind !== "parameter" && v.kind !== "buffer")
      .map((v) => `${format.shape(v.shape)} ${v.dtype}`).join(", ");
  const measures: Measure[] = ["measured", "time", "flops", "bytes"];
  const bound = costs.bound(item);
  return [
    item.path || node?.name || item.label,
    [item.cls.split(".").pop(), node && node.op !== item.label ? node.op : "", graph.details[item.node]]
      .filter(Boolean).join(" · "),
    node ? [shapes(node.inputs), shapes(node.outputs)].filter(Boolean).join(" → ") : item.output && `→ ${item.output}`,
    ...measures.filter((m) => costs.item(m, item)).map((m) => `${shareText(m, costs.share(m, item))} of ${OF[m]}`),
    bound ? `${colours.marks.bounds[bound].label}, ${format.intensity(costs.intensity(item))} FLOPs/byte` : "",
    node?.source ?? "",
  ].filter(Boolean);
}

const OF: Partial<Record<Measure, string>> = { measured: "the measured time", time: "the predicted time", flops: "the FLOPs", bytes: "the bytes moved" };
