// Beneath the graph: the legend, and the charts that can be opened over it.

import type { App, Dock } from "../app";
import { fill, h } from "./dom";
import { Roofline } from "./roofline";
import { alive, Timeline } from "./timeline";

export function dock(app: App, legend: HTMLElement): HTMLElement {
  const charts = h("div", { class: "charts" });
  const tabs: [Dock, string][] = [["memory", "Memory"], ["roofline", "Roofline"]];
  const buttons = tabs.map(([key, name]) =>
    h("button", { type: "button", "aria-expanded": "false", onclick: () => app.setDock(app.dock === key ? "" : key) }, name),
  );
  const made = new Map<Dock, HTMLElement>();
  const make = (key: Dock): HTMLElement => {
    if (key === "memory") return h("div", { class: "chart" }, new Timeline(app).element, alive(app));
    return h("div", { class: "chart" }, new Roofline(app).element);
  };
  const paint = (): void => {
    tabs.forEach(([key], i) => buttons[i].setAttribute("aria-expanded", String(app.dock === key)));
    charts.hidden = !app.dock;
    if (!app.dock) return;
    const chart = made.get(app.dock) ?? make(app.dock);
    made.set(app.dock, chart);
    fill(charts, chart);
    app.emit("lit");
  };
  app.on("dock", paint);
  charts.hidden = true;
  return h("div", { class: "dock" }, h("div", { class: "strip" }, legend, h("span", { class: "spring" }), h("div", { class: "choices joined" }, ...buttons)), charts);
}
