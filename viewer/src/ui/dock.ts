// Beneath the graph: the legend, with a click on an entry lighting what has that colour, and the charts that can be
// opened over it.

import type { App, Dock } from "../app";
import { COLOUR_MODES, legendEntries } from "../draw/colours";
import { ramp } from "../draw/theme";
import { div, fill, h, press, span } from "./dom";
import { Roofline } from "./roofline";
import { alive, LiveMemory } from "./live";
import { Timeline } from "./timeline";

export function dock(app: App, legend: HTMLElement): HTMLElement {
  const charts = div("charts");
  const tabs: [Dock, string][] = [["memory", "Memory"], ["roofline", "Roofline"], ["timeline", "Timeline"]];
  const buttons = tabs.map(([key, name]) =>
    press(name, () => app.setDock(app.dock === key ? "" : key), { "aria-expanded": "false" }),
  );
  const made = new Map<Dock, HTMLElement>();
  const make = (key: Dock): HTMLElement => {
    if (key === "memory") return div("chart", new LiveMemory(app).element, alive(app));
    return div("chart", new (key === "roofline" ? Roofline : Timeline)(app).element);
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
  app.on(paint, "dock");
  charts.hidden = true;
  return div("dock", div("strip", legend, span("spring"), div("choices joined", ...buttons)), charts);
}

/** What the colours mean. */
export function legend(app: App): HTMLElement {
  const element = h("div", { class: "legend", "aria-label": "Legend" });
  const paint = (): void => {
    const name = COLOUR_MODES.find(([mode]) => mode === app.colours.mode)?.[1] ?? "";
    const scale = app.colours.scale();
    if (scale) {
      const stops = Array.from({ length: 9 }, (_, i) => ramp(app.theme, i / 8)).join(",");
      fill(
        element, div("legend-title", name), span("ramp-end", scale.low),
        h("div", { class: "ramp", style: { background: `linear-gradient(to right, ${stops})` } }),
        span("ramp-end", `${scale.high}, the costliest here`),
      );
      return;
    }
    const entries = legendEntries(app.colours).map((entry) => {
      const light = `colour:${entry.name}`;
      return h(
        "button",
        {
          type: "button", class: "legend-entry", "aria-pressed": String(app.litName === light),
          title: "Light these",
          onclick: () => (app.litName === light ? app.light("", null) : app.light(light, entry.nodes)),
        },
        h("span", { class: "swatch", style: { background: entry.colour } }), span("legend-mark", entry.mark),
        span("legend-name", entry.name), span("legend-note", entry.note),
      );
    });
    const wire = (line: string, name: string): HTMLElement =>
      span("legend-entry", h("span", { class: "wire", style: { "border-top": line } }), name);
    const { residual, into, out } = app.theme;
    const edges = [
      app.scene?.boxes.some((b) => b.residuals) && wire(`3px solid ${residual}`, "residual"),
      ...(app.chosen
        ? [wire(`2px solid ${into}`, "what it reads"), wire(`2px dashed ${out}`, "what reads it")] : []),
    ].filter((e) => e instanceof HTMLElement);
    const ridge = app.colours.mode === "bottleneck" ? div("legend-foot", `ridge point ${app.ridgeText}`) : null;
    fill(element, div("legend-title", name), ...entries, ...edges, ridge);
  };
  app.on(paint, "look", "lit", "scene", "select");
  return element;
}
