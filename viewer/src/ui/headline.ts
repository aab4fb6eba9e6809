// Over the graph: the sentence that says where the cost is, and beneath it the whole as a row of folded modules. What a
// part consists of is a second row beneath the one that the pointer is on.

import type { App } from "../app";
import { type Item } from "../data/tree";
import * as format from "../format";
import { div, fill, h, p } from "./dom";
import { ending, hint } from "./parts";

/** Pixels that a name needs in the row. */
const LETTER = 6.6;

export function headlineBar(app: App): HTMLElement {
  const sentence = p("sentence");
  const row = h("div", { class: "parts-row", role: "group", "aria-label": "Share of each part" });
  const second = h("div", { class: "parts-row second", "aria-hidden": "true" });
  const element = div("headline", sentence, row, second);
  const draw = (into: HTMLElement, parts: [Item, number][], whole: number): void => {
    const width = into.clientWidth || row.clientWidth;
    fill(into, ...parts.map(([item, share]) => {
      // Of a node that is nearly all of its module, the module's name says more.
      const of = item.node >= 0 && !item.path && item.parent && app.colours.share(item.parent) * 0.9 < share;
      const name = ending(of && item.parent ? item.parent : item);
      const room = (share / whole) * width - 10;
      const last = /^\d*$/.test(item.label) ? "" : item.label;
      const text = [`${name} ${format.percent(share)}`, name, last].find((t) => t.length * LETTER < room) ?? "";
      const { colour } = app.colours.look(item);
      return h("button", {
        type: "button", class: "parts-one", title: hint(app, item), "aria-label": hint(app, item),
        style: { "flex-grow": String(share / whole), "--part": colour },
        onclick: () => void app.select(item, true),
        onmouseenter: () => into === row && below(item, share),
      }, text);
    }));
  };
  const below = (item: Item, share: number): void => {
    const member = item.kind === "fold" ? item.children[0] : item;
    const parts = member.children.map((c): [Item, number] => [c, app.colours.share(c)]).filter(([, s]) => s > 0);
    second.classList.toggle("shown", parts.length > 1);
    draw(second, parts.length > 1 ? parts : [], share);
  };
  const paint = (): void => {
    const [said, meaning] = app.headline();
    sentence.textContent = said;
    sentence.title = meaning;
    element.hidden = !said;
    draw(row, app.row(), 1);
    second.classList.remove("shown");
  };
  element.addEventListener("mouseleave", () => second.classList.remove("shown"));
  app.on("look", paint);
  new ResizeObserver(() => row.clientWidth && draw(row, app.row(), 1)).observe(row);
  return element;
}
