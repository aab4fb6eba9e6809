// What the panel is made of: sections, lists of figures, and lists of links to items.

import type { App } from "../app";
import type { Item } from "../data/items";
import * as format from "../format";
import { h } from "./dom";

export type Row = [string, string | Node | null];

export function figure(app: App, item: Item): string {
  const time = app.costs.item("time", item);
  return time ? format.seconds(time) : format.flops(app.costs.item("flops", item));
}

export function link(app: App, item: Item, name: string, note: string): HTMLElement {
  return h("button", { type: "button", class: "link", onclick: () => void app.select(item, true) }, h("span", { class: "value" }, name), h("span", { class: "note" }, note));
}

export function list(entries: HTMLElement[]): HTMLElement {
  return h("ul", { class: "links" }, ...entries.map((entry) => h("li", null, entry)));
}

export function rows(title: string, all: Row[]): HTMLElement {
  const shown = all.filter(([, value]) => value !== null && value !== "");
  return section(title, h("dl", null, ...shown.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
}

export function section(title: string, ...children: (Node | null)[]): HTMLElement {
  return h("section", { class: "part" }, h("h3", null, title), ...children);
}

export function more(count: number, shown: number): HTMLElement | null {
  return count > shown ? h("p", { class: "note" }, `and ${format.integer(count - shown)} more`) : null;
}
