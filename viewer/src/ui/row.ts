// One row of the table.

import type { App } from "../app";
import type { Item } from "../data/tree";
import type { Box } from "../layout/scene";
import { columnsOf } from "./columns";
import { h } from "./dom";
import { hint } from "./parts";

export const ROW = 26;

export interface Row {
  item: Item;
  /** Its box in the graph; null in the list of all nodes. */
  box: Box | null;
  depth: number;
}

export function rowElement(app: App, { item, box, depth }: Row, at: number): HTMLElement {
  const branch = item.children.length > 0;
  const open = box ? box.layout !== null : false;
  const faded = app.litBefore ? app.litBefore[item.last + 1] === app.litBefore[item.first] : false;
  const chosen = app.selected === item;
  const look = app.colours.look(item);
  const classes = `row${chosen ? " chosen" : ""}${faded ? " faded" : ""}${app.hovered?.item === item ? " hovered" : ""}${app.colours.flags.errors(item) ? " failed" : ""}`;
  const toggle = branch
    ? h("button", { type: "button", class: open ? "twist open" : "twist", tabindex: "-1", "aria-label": open ? "Close" : "Open", onclick: (event: MouseEvent) => {
      event.stopPropagation();
      if (box) void app.toggle(box);
    } })
    : h("span", { class: "twist none" });
  return h(
    "div",
    {
      class: classes, role: "row", "aria-level": String(depth + 1), "aria-selected": String(chosen),
      title: hint(app, item), style: { top: `${at * ROW}px` }, data: { item: String(item.id) },
      onclick: () => void app.select(item, true),
      ondblclick: () => box && void app.toggle(box),
      onmouseenter: () => {
        const under = app.box(item);
        if (under === app.hovered) return;
        app.hovered = under;
        app.emit("hover");
      },
    },
    ...columnsOf(app).map((c, i) => {
      if (i) return h("span", { class: "cell number", role: "gridcell" }, c.text(app, item));
      return h(
        "span",
        { class: "cell name", role: "gridcell", style: { "padding-left": `${8 + depth * 13}px` } },
        toggle,
        h("span", { class: "swatch", style: { background: look.colour } }),
        h("span", { class: branch ? "label strong" : "label" }, c.text(app, item)),
        item.kind === "fold" ? h("span", { class: "pill" }, `× ${item.count}`) : null,
      );
    }),
  );
}
