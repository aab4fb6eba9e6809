// What is chosen in the bar: sheets that drop from a button (the filter, the sizes, help, a menu), and the search field.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import { choices, type Facet } from "../data/finding";
import { clean } from "../data/document";
import * as format from "../format";
import { button, div, h, icon, ICONS, p, press, type Props, refill, span } from "./dom";
import { entry, list, section } from "./parts";

export function popover(label: string, d: string, make: () => HTMLElement, props: Props = {}): HTMLElement {
  let sheet: HTMLElement | null = null;
  const holder = div("popover");
  const close = (): void => {
    sheet?.remove();
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
  };
  const outside = (event: Event): void => {
    if (!event.composedPath().includes(holder)) close();
  };
  const opener = button(label, d, () => {
    if (sheet?.isConnected) return close();
    sheet ??= make();
    holder.append(sheet);
    opener.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", outside, true);
    (sheet.querySelector("button, input, select") as HTMLElement | null)?.focus({ preventScroll: true });
  }, { "aria-expanded": "false", ...props });
  holder.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !sheet?.isConnected) return;
    event.stopPropagation();
    close();
    opener.focus();
  });
  holder.addEventListener("close", close);
  holder.append(opener);
  return holder;
}

/** Lines of a menu. */
export function menu(entries: [string, string, () => void][]): HTMLElement {
  return h("div", { class: "sheet menu", role: "menu" }, ...entries.map(([name, note, run]) =>
    h("button", { type: "button", role: "menuitem", onclick: (event: MouseEvent) => {
      (event.currentTarget as HTMLElement).closest(".popover")?.dispatchEvent(new Event("close"));
      run();
    } }, h("span", null, name), span("note", note)),
  ));
}

export function searchField(app: App): { element: HTMLElement; focus: () => void } {
  const input = h("input", {
    type: "search", placeholder: "Search", "aria-label": "Search", title: "Name, operator, class or shape (/)",
    spellcheck: "false", autocomplete: "off",
  });
  const count = h("output", { class: "hits" });
  const before = button("Previous hit", ICONS.prev, () => void app.stepHit(-1));
  const after = button("Next hit", ICONS.next, () => void app.stepHit(1));
  const element = h("div", { class: "search", role: "search" }, icon(ICONS.search), input, count, before, after);
  let pause = 0;
  input.addEventListener("input", () => {
    clearTimeout(pause);
    pause = window.setTimeout(() => app.search(input.value), 90);
  });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      clearTimeout(pause);
      if (app.query !== input.value) app.search(input.value);
      void app.stepHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      input.value = "";
      app.search("");
      input.blur();
    }
  });
  const say = (): void => {
    if ((input.getRootNode() as Document | ShadowRoot).activeElement !== input) input.value = app.query;
    const all = format.integer(app.hits.length);
    const none = app.query.trim() ? "none" : "";
    const boxes = app.hitBoxes();
    const seen = boxes < app.hits.length ? `${all} in ${format.plural(boxes, "box")}` : all;
    count.textContent = !app.hits.length ? none : app.hit >= 0 ? `${format.integer(app.hit + 1)} of ${all}` : seen;
    element.classList.toggle("active", app.hits.length > 0);
  };
  app.on(say, "search", "scene");
  return { element, focus: () => input.focus() };
}

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
    refill(element, ...groups, dear, div("sheet-foot", clear));
  };
  app.keep(paint, "lit", "look");
  return element;
}

/** The sizes that are offered, each with what the model costs then: a click shows it so. */
export function sizesSheet(app: App): HTMLElement {
  const element = h("div", { class: "sheet sizes", role: "dialog", "aria-label": "Sizes" });
  const { variables = [], totals = [], notes = [] } = app.page.sizes ?? {};
  const profiled = variables.map(({ value }) => value);
  const paint = (): void => {
    const point = app.sizes ?? profiled;
    const entries = ({ offered, name }: (typeof variables)[number], i: number): HTMLElement[] => offered.map((size) => {
      const asked = point.with(i, size);
      const all = totals[app.pointOf(asked)];
      const said = all ? `${format.flops(all[0])}, ${format.size(all[2])} moved, ${format.size(all[3])} at the peak` : "not known";
      const line = entry(`${clean(name)} = ${format.integer(size)}`, said, () => app.setSizes(asked));
      line.setAttribute("aria-pressed", String(size === point[i]));
      line.dataset.key = `${i}:${size}`;
      line.disabled = !all;
      return line;
    });
    refill(
      element, ...variables.map((v, i) => section(clean(v.meaning), list(entries(v, i)))),
      p("note", "Modules are exact, by the formulas of this profile; nodes in one module share its part as profiled."),
      p("note", "Predicted times and the memory chart are of the profiled sizes."),
      ...notes.map((n) => p("note", clean(n, 500))),
      div("sheet-foot", press("As profiled", () => app.setSizes(null), { class: "plain" })),
    );
  };
  app.keep(paint, "look");
  return element;
}

const KEYS: [string, string][] = [
  ["Click a module", "open or close it"],
  ["Click twice", "open or close all beneath it"],
  ["Wheel, pinch, + −", "zoom"],
  ["Drag, W A S D", "move"],
  ["↑ ↓", "node before or after"],
  ["← →", "out of a module, into it"],
  ["Enter, Shift Enter", "open or close, with all beneath"],
  [", .", "other repeats of a fold"],
  ["F", "fit the whole graph"],
  ["G", "go to what is chosen"],
  ["E, C, R", "open all, close all, as at first"],
  ["Shift E", "open all, every repeat by itself"],
  ["/, N, P", "search, next hit, previous hit"],
  ["H", "light the ten hot spots"],
  ["X", "light the costliest path"],
  ["T", "light or dark"],
  ["?", "this help"],
  ["Esc", "put out the light, choose nothing"],
];

export function help(): HTMLElement {
  return h(
    "div", { class: "sheet help", role: "dialog", "aria-label": "Help", tabindex: "-1" },
    h("dl", null, ...KEYS.flatMap(([keys, what]) => [h("dt", null, keys), h("dd", null, what)])),
    p("note", "Search takes op:, class:, name:, shape:, dtype:, kernel: and file: before a word."),
    p("note", "The address of the page holds what you see."),
  );
}
