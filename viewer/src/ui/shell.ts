// The page: the bar above, the table, the graph with its corners, and the panel.

import type { App } from "../app";
import { nodesOf } from "../data/costliest";
import type { ColourMode } from "../draw/colours";
import { zoomed } from "../draw/camera";
import * as format from "../format";
import { dock, legend } from "./dock";
import { card, fileName, paper, png, save, seen, svg, whole } from "./export";
import { button, clamp, copyText, div, fill, h, ICONS, onKey, span } from "./dom";
import { filterSheet, help, menu, popover, searchField, sizesSheet } from "./menus";
import { headlineBar, hoverCard, minimap } from "./overlays";
import { panel } from "./panel";
import { Stage } from "./stage";
import { Table } from "./table";

export interface Shell {
  element: HTMLElement;
  stage: Stage;
  table: Table;
}

export function shell(app: App): Shell {
  const zoom = (by: number): void => stage.fly(zoomed(app.camera, by, app.size.width / 2, app.size.height / 2));
  const controls = h(
    "div", { class: "zoom-tools", role: "toolbar", "aria-label": "Graph" },
    button("Open all (E)", ICONS.open, () => void app.openAll(true)),
    button("Close all (C)", ICONS.close, () => void app.openAll(false)),
    button("Zoom in (+)", ICONS.plus, () => zoom(1.5)), button("Zoom out (−)", ICONS.minus, () => zoom(1 / 1.5)),
    button("Fit (F)", ICONS.fit, () => app.fit()),
  );
  const stage = new Stage(app, controls);
  const table = new Table(app);
  const details = panel(app);
  const search = searchField(app);
  const element = h("div", { class: "opgraph", tabindex: "-1" });

  const side = (name: string, label: string, d: string): HTMLButtonElement => {
    const toggle = button(label, d, () => {
      const shown = element.classList.toggle(`no-${name}`);
      toggle.setAttribute("aria-pressed", String(!shown));
    }, { "aria-pressed": "true" });
    return toggle;
  };
  const tableToggle = side("table", "Table", ICONS.table);
  const panelToggle = side("panel", "Details", ICONS.panel);
  const helper = popover("Help (?)", ICONS.help, help);
  const bar = h(
    "header", { class: "bar" },
    div("brand", h("span", { class: "logo", "aria-hidden": "true" }), h("span", null, "opgraph")),
    h("h1", { title: app.model.name }, app.model.name), chips(app), span("spring"), search.element, modeChoice(app),
    deviceChoice(app), plumbingToggle(app),
    div(
      "tools", app.page.sizes ? popover("Sizes", ICONS.sizes, () => sizesSheet(app)) : null,
      popover("Filter", ICONS.filter, () => filterSheet(app)), exports(app), tableToggle, panelToggle, themeButton(app),
      helper,
    ),
  );
  const live = h("div", { class: "offscreen", "aria-live": "polite" });
  app.on(
    () => (live.textContent = app.selected ? `${app.selected.label}, ${app.selected.cls || app.selected.kind}` : ""),
    "select",
  );
  const key = legend(app);
  const middle = h(
    "section", { class: "middle", "aria-label": "Graph" }, headlineBar(app), div("stage-box", stage.element, controls, minimap(app), notice(app), hoverCard(app)), dock(app, key),
    live,
  );
  fill(
    element, bar,
    h("main", { class: "columns" }, table.element, splitter(element, "--left", 1), middle, splitter(element, "--right", -1), details),
    paper(app, () => [key, details]),
  );

  const dress = (): void => {
    const { theme } = app;
    element.classList.toggle("dark", theme.dark);
    const names = ["canvas", "card", "border", "text", "muted", "faint", "accent", "hit", "error"] as const;
    for (const name of names) element.style.setProperty(`--${name}`, theme[name]);
  };
  app.keep(dress, "look");
  // On a narrow page, as in most notebooks, the graph comes first; on a very narrow one the table slides over it, too.
  const narrow = new ResizeObserver(() => {
    if (!element.clientWidth) return;
    narrow.disconnect();
    if (element.clientWidth <= 1150) panelToggle.click();
    if (element.clientWidth <= 900) tableToggle.click();
  });
  narrow.observe(element);
  element.addEventListener("keydown", (event) => {
    const typing = (event.composedPath()[0] as HTMLElement).tagName === "INPUT";
    if (typing || event.metaKey || event.ctrlKey || event.altKey) return;
    onKey(event, {
      "/": search.focus,
      n: () => void app.stepHit(1),
      p: () => void app.stepHit(-1),
      Escape: () => {
        if (app.lit) app.light("", null);
        else void app.select(null);
      },
      "?": () => helper.querySelector("button")?.click(),
      t: () => app.setTheme(app.dark ? "light" : "dark"),
      h: () => app.light("hotspots", app.hotspots().flatMap(nodesOf)),
      x: () => app.lightPath(),
    });
  });
  return { element, stage, table };
}

function chips(app: App): HTMLElement {
  const { costs, model } = app;
  const chip = (value: string, name: string): HTMLElement => span("chip", h("b", null, value), ` ${name}`);
  const element = div("chips");
  const paint = (): void => {
    const sizes = app.sizes?.map((size, i) => `${app.page.sizes?.variables[i].name} = ${format.integer(size)}`)
      .join(", ");
    fill(
      element, sizes ? chip(sizes, "") : null, chip(format.count(costs.parameterCount(app.tree.root)), "parameters"),
      chip(format.count(costs.total("flops")), "FLOPs"),
      chip(format.size(costs.total("bytes")), "moved"), chip(format.integer(model.graph.own), "nodes"),
    );
  };
  app.keep(paint, "look");
  return element;
}

function choice(
  app: App, name: string, label: string, options: Node[], chosen: () => string, choose: (value: string) => void,
): HTMLElement {
  const select = h("select", { "aria-label": label, onchange: () => choose(select.value) }, ...options);
  app.keep(() => (select.value = chosen()), "look");
  return h("label", { class: "choice" }, h("span", null, name), select);
}

function modeChoice(app: App): HTMLElement {
  const options = app.modes().map(([value, name]) => h("option", { value }, name));
  return choice(app, "Colour", "Colour by", options, () => app.colours.mode, (mode) => app.setMode(mode as ColourMode));
}

function deviceChoice(app: App): HTMLElement | null {
  if (!app.devices.length) return null;
  const vendors = new Map<string, HTMLOptGroupElement>();
  for (const device of app.devices) {
    const group = vendors.get(device.vendor) ?? h("optgroup", { label: device.vendor });
    vendors.set(device.vendor, group);
    const own = device.name.startsWith(`${device.vendor} `) ? device.name.slice(device.vendor.length + 1) : device.name;
    group.append(h("option", { value: device.id, title: device.name }, own));
  }
  const options = [h("option", { value: "" }, "no device"), ...vendors.values()];
  return choice(app, "Device", "Device", options, () => app.device?.id ?? "", (id) => app.setDevice(id));
}

function exports(app: App): HTMLElement {
  const asSvg = (what: typeof seen): void => save(
    new Blob([svg(app, what(app))], { type: "image/svg+xml" }), fileName(app, "svg"),
  );
  const asPng = (what: typeof seen, scale: number): void => void png(app, what(app), scale)
    .then((blob) => save(blob, fileName(app, "png")));
  return popover("Export", ICONS.download, () => menu([
    ["SVG", "what is seen", () => asSvg(seen)],
    ["PNG", "what is seen", () => asPng(seen, 2)],
    ["SVG", "the whole graph", () => asSvg(whole)],
    ["PNG", "the whole graph", () => asPng(whole, 1)],
    ["Card", "1200 x 630, to be shown beside a link", () => void card(app)
      .then((blob) => save(blob, fileName(app, "card.png")))],
    ["Link", "to this view", () => void copyText(location.href)],
    ["Print", "or PDF", () => print()],
  ]));
}

function plumbingToggle(app: App): HTMLElement {
  const input = h("input", { type: "checkbox", onchange: () => void app.setPlumbingHidden(!input.checked) });
  app.keep(() => (input.checked = !app.plumbingHidden), "look");
  return h(
    "label", { class: "choice check", title: "Draw reshapes, constants, and other nodes that do no work on data" },
    input, h("span", null, "Reshapes"),
  );
}

function themeButton(app: App): HTMLElement {
  return button("Light or dark (T)", ICONS.sun, () => app.setTheme(app.dark ? "light" : "dark"));
}

/** What is lit, with the way out. */
function notice(app: App): HTMLElement {
  const element = h("div", { class: "notice", role: "status" });
  app.on(() => {
    element.hidden = !app.lit;
    if (!app.lit) return;
    const count = app.lit.reduce((a, b) => a + b, 0);
    fill(
      element, h("span", null, `${format.plural(count, "node")} lit`),
      button("Put out (Esc)", ICONS.cross, () => app.light("", null)),
    );
  }, "lit");
  element.hidden = true;
  return element;
}

/** A bar to drag between two parts; their width is a property of the page's style. */
function splitter(root: HTMLElement, property: string, direction: number): HTMLElement {
  const element = h(
    "div",
    {
      class: `splitter ${direction > 0 ? "left" : "right"}`, role: "separator", "aria-orientation": "vertical",
      tabindex: "0", "aria-label": direction > 0 ? "Width of the table" : "Width of the details",
      "aria-valuemin": "180", "aria-valuemax": "900", "aria-valuenow": direction > 0 ? "384" : "320",
    },
  );
  let width = direction > 0 ? 384 : 320;
  const set = (to: number): void => {
    width = clamp(to, 180, 900);
    root.style.setProperty(property, `${width}px`);
    element.setAttribute("aria-valuenow", String(Math.round(width)));
  };
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    const [from, before] = [event.clientX, width];
    const move = (e: PointerEvent): void => set(before + (e.clientX - from) * direction);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", () => element.removeEventListener("pointermove", move), { once: true });
  });
  element.addEventListener("keydown", (event) => {
    const by = event.key === "ArrowRight" ? 24 : event.key === "ArrowLeft" ? -24 : 0;
    if (by) set(width + by * direction);
  });
  return element;
}
