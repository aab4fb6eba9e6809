// The page in a notebook, by the protocol of anywidget: the data comes from Python, and what is chosen goes back.

import type { PageJson } from "./data/document";
import type { Item } from "./data/tree";
import type { App } from "./app";
import { mount } from "./mount";

interface Chosen {
  kind: string;
  name: string;
  path: string;
  class: string;
  /** Ids of nodes, 1-based: the first and the last beneath it; null for what is removed. */
  nodes: [number, number] | null;
}

interface WidgetModel {
  get(name: "data"): string;
  get(name: "height"): number;
  get(name: "selected"): Partial<Chosen> | null;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, run: () => void): void;
  off(event: string, run: () => void): void;
}

export function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const host = document.createElement("div");
  const size = (): void => {
    const rim = "border:1px solid #8886;border-radius:8px;overflow:hidden;transition:color 1ms";
    host.style.cssText = `display:block;height:${model.get("height")}px;${rim}`;
  };
  size();
  el.append(host);
  // Every notebook has a theme of its own; what they have in common is that letters are light where it is dark.
  const dark = (): boolean => brightness(getComputedStyle(host).color) > 0.5;
  const { app, close } = mount(host, JSON.parse(model.get("data")) as PageJson, "", dark);
  // The colour is known once the element stands in the notebook, and again when the sheet of another theme has come.
  const dress = (): void => void (app.dark !== app.colours.theme.dark && app.recolour());
  const placed = new ResizeObserver(dress);
  placed.observe(host);
  host.addEventListener("transitionend", dress);
  app.on(() => {
    const next = describe(app, app.selected);
    if (JSON.stringify(next) === JSON.stringify(model.get("selected"))) return;
    model.set("selected", next);
    model.save_changes();
  }, "select");
  const choose = (): void => {
    const wanted = model.get("selected");
    const item = wanted ? found(app, wanted) : null;
    if (item !== app.selected) void app.select(item, true);
  };
  model.on("change:selected", choose);
  model.on("change:height", size);
  return () => {
    model.off("change:selected", choose);
    model.off("change:height", size);
    placed.disconnect();
    close();
    host.remove();
  };
}

/** Of a colour as computed styles spell it: 0 for black, 1 for white. */
function brightness(colour: string): number {
  const [r = 0, g = 0, b = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return (0.299 * r + 0.587 * g + 0.114 * b) / (colour.startsWith("rgb") ? 255 : 1);
}

function describe(app: App, item: Item | null): Chosen | null {
  if (!item || item.kind === "root") return null;
  const node = item.node >= 0 ? app.model.graph.nodes[item.node] : null;
  return {
    kind: item.kind, name: node ? node.name : item.label, path: item.path, class: item.cls,
    nodes: app.model.graph.ids(item.first, item.last),
  };
}

/** What Python asks for: by its nodes, or by the path of a module or the name of a node alone. */
function found(app: App, wanted: Partial<Chosen>): Item | null {
  const { items } = app.tree;
  const exact = items.find(
    (i) => i.kind === wanted.kind && wanted.nodes &&
      String(app.model.graph.ids(i.first, i.last)) === String(wanted.nodes)
  );
  return (
    exact ??
    items.find((i) => wanted.path !== undefined && wanted.path !== "" && i.path === wanted.path) ??
    items.find((i) => i.node >= 0 && app.model.graph.nodes[i.node].name === wanted.name) ??
    null
  );
}
