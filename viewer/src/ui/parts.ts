// What the panel is made of: sections, lists of figures, and lists of links to items.

import type { App } from "../app";
import type { Measure, Share } from "../data/costs";
import type { Item } from "../data/tree";
import { show } from "../draw/colours";
import * as format from "../format";
import { type Child, div, h, p, press, span, unbroken } from "./dom";

export type Row = [string, string | Node | null];

/** A measure of an item as "each … × n = total · share"; what stands once has no repetitions. */
export function shareText(measure: Measure, share: Share): string {
  const { times } = share;
  const [each, total] = [share.each, share.total].map((value) => show(measure, value));
  const all = times > 1 ? `each ${each} × ${format.integer(times)} = ${total}` : total;
  // Where a line ends, the percentage stays whole.
  return share.share > 0 ? `${all} ·\u00a0${format.percent(share.share).replace(" ", "\u00a0")}` : all;
}

/** What an item costs, in the measure that is chosen. */
export function figure({ costs, metric }: App, item: Item): string {
  return shareText(metric, costs.share(metric, item));
}

/** The end of its path that says something: "act", and "layer1.0" rather than "0". */
export function ending(item: Item): string {
  const { path } = item;
  const parts = path.split(".");
  const at = parts.findLastIndex((part) => !/^\d*$/.test(part));
  return path && at >= 0 ? parts.slice(at).join(".") : item.label || item.cls;
}

/** What is said of an item where the pointer rests on it. */
export function hint(app: App, item: Item): string {
  const name = item.path || app.model.graph.nodes[item.node]?.name || item.label;
  return app.costs.total("bytes") ? `${name}: ${figure(app, item)}` : name;
}

export function link(app: App, item: Item, name: string, note: string): HTMLElement {
  return entry(name, note, () => void app.select(item, true));
}

/** A line that can be pressed: what it is, and a note. */
export function entry(name: Child | Child[], note: Child, run: () => void): HTMLButtonElement {
  return press([span("value", ...[name].flat().flatMap(unbroken)), span("note", note)], run, { class: "link" });
}

export function list(entries: HTMLElement[]): HTMLElement {
  return h("ul", { class: "links" }, ...entries.map((entry) => h("li", null, entry)));
}

export function rows(title: string, all: Row[]): HTMLElement {
  const shown = all.filter(([, value]) => value !== null && value !== "");
  return section(
    title, h("dl", null, ...shown.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
  );
}

export function section(title: string, ...children: (Node | null)[]): HTMLElement {
  return h("section", { class: "part" }, h("h3", null, title), ...children);
}

/** A section with a line for each of the first `most`, and how many more there are; none of nothing. */
export function listed<T>(title: string, all: T[], most: number, line: (one: T) => HTMLElement): HTMLElement | null {
  if (!all.length) return null;
  const more = all.length > most ? p("note", `and ${format.integer(all.length - most)} more`) : null;
  return section(title, list(all.slice(0, most).map(line)), more);
}

/** A line of what is only said. */
export function said(name: Child | Child[], ...note: Child[]): HTMLElement {
  return div("parameter", span("value", ...[name].flat()), note.length ? span("note", ...note) : null);
}
