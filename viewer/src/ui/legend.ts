// What the colours mean, with a click on an entry lighting what has that colour.

import type { App } from "../app";
import { COLOUR_MODES } from "../draw/categories";
import { legendEntries } from "../draw/colours";
import { ramp } from "../draw/theme";
import { fill, h } from "./dom";

export function legend(app: App): HTMLElement {
  const element = h("div", { class: "legend", "aria-label": "Legend" });
  const paint = (): void => {
    const name = COLOUR_MODES.find(([mode]) => mode === app.colours.mode)?.[1] ?? "";
    const scale = app.colours.scale();
    if (scale) {
      const stops = Array.from({ length: 9 }, (_, i) => ramp(app.theme, i / 8)).join(",");
      fill(
        element,
        h("div", { class: "legend-title" }, name),
        h("span", { class: "ramp-end" }, scale.low),
        h("div", { class: "ramp", style: { background: `linear-gradient(to right, ${stops})` } }),
        h("span", { class: "ramp-end" }, `${scale.high}, the costliest here`),
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
        h("span", { class: "swatch", style: { background: entry.colour } }),
        h("span", { class: "legend-mark" }, entry.mark),
        h("span", { class: "legend-name" }, entry.name),
        h("span", { class: "legend-note" }, entry.note),
      );
    });
    const ridge = app.colours.mode === "bottleneck" ? h("div", { class: "legend-foot" }, `ridge point ${app.ridgeText}`) : null;
    fill(element, h("div", { class: "legend-title" }, name), ...entries, ridge);
  };
  for (const event of ["look", "lit", "scene"] as const) app.on(event, paint);
  return element;
}
