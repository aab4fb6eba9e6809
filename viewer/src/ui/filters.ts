// The choices of the filter, in a sheet that drops from the bar. What passes is lit.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import { choices, type Facet } from "../data/filters";
import * as format from "../format";
import { div, fill, h, press, span } from "./dom";

const FACETS: [Facet, string][] = [
  ["bound", "Bottleneck"],
  ["op", "Operator"],
  ["dtype", "dtype"],
  ["fragment", "Fragment"],
  ["phase", "Phase"],
];
const MEASURES: [Measure, string][] = [["flops", "FLOPs"], ["bytes", "bytes"], ["time", "time"], ["measured", "measured time"],
  ["memory", "memory"]];
/** Positions of the slider, as shares of the whole: nothing, then a hundredth of a percent to all. */
const shareAt = (position: number): number => (position <= 0 ? 0 : 10 ** (-4 + (position / 100) * 4));

export function filterSheet(app: App): HTMLElement {
  const element = h("div", { class: "sheet filters", role: "dialog", "aria-label": "Filter" });
  const paint = (): void => {
    const { filter, model } = app;
    const groups = FACETS.map(([facet, name]) => {
      const all = choices(model.graph, facet, (n) => app.boundOf(n));
      if (all.length < 2 && facet !== "op") return null;
      const chosen = new Set(filter.facets[facet] ?? []);
      return h(
        "fieldset", null, h("legend", null, name),
        div("options", ...all.slice(0, 80).map(([value, count]) =>
          h("label", { class: chosen.has(value) ? "option on" : "option" },
            h("input", {
              type: "checkbox", data: { key: `${facet}:${value}` }, checked: chosen.has(value), onchange: () => {
                if (!chosen.delete(value)) chosen.add(value);
                app.setFilter({ ...filter, facets: { ...filter.facets, [facet]: [...chosen] } });
              },
            }),
            h("span", null, value), span("note", format.integer(count))),
        )),
      );
    });
    const measure = h(
      "select",
      {
        "aria-label": "Cost", data: { key: "cost" },
        onchange: () => app.setFilter({ ...app.filter, measure: measure.value as Measure }),
      },
    );
    for (const [value, name] of MEASURES) {
      if (app.costs.total(value)) {
        measure.append(h("option", { value, selected: filter.measure === value }, name));
      }
    }
    const position = filter.least > 0 ? Math.round(((Math.log10(filter.least) + 4) / 4) * 100) : 0;
    const slider = h(
      "input",
      {
        type: "range", min: "0", max: "100", value: String(position), "aria-label": "Least share",
        data: { key: "least" }, onchange: () => app.setFilter({ ...app.filter, least: shareAt(Number(slider.value)) }),
      },
    );
    const label = span("note");
    const say = (): void => {
      const share = shareAt(Number(slider.value));
      const least = (share * 100).toFixed(share < 0.001 ? 3 : 1);
      label.textContent = share ? `at least ${least} % of the model's` : "any cost";
    };
    slider.addEventListener("input", say);
    say();
    const dear = h("fieldset", null, h("legend", null, "Cost"), div("cost-row", measure, slider, label));
    const clear = press("Clear the filter", () => app.setFilter(null), { class: "plain" });
    // What has the focus is made anew, and keeps it.
    const root = element.getRootNode() as Document | ShadowRoot;
    const focused = (root.activeElement as HTMLElement | null)?.dataset.key;
    const { scrollTop } = element;
    fill(element, ...groups, dear, div("sheet-foot", clear));
    element.scrollTop = scrollTop;
    const again = [...element.querySelectorAll<HTMLElement>("[data-key]")].find(
      (e) => focused && e.dataset.key === focused
    );
    again?.focus({ preventScroll: true });
  };
  paint();
  app.on("lit", paint);
  app.on("look", paint);
  return element;
}
