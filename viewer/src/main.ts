// The ways into the bundle: `opgraph.page` for a file, and for a notebook `opgraph.render`, by the protocol of anywidget: the
// data comes from Python, and what is chosen goes back. The page is built inside an element, in letters that travel with
// it: a page on a disk cannot fetch them.

import inter from "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?inline";
import { App } from "./app";
import type { PageJson } from "./data/document";
import type { Item } from "./data/tree";
import { forgetMeasures } from "./draw/pen";
import { type Shell, shell } from "./ui/shell";
import style from "./ui/style.css?inline";
import { bind, read } from "./url";

/** What is seen first, in the letters of the page. */
async function first(app: App, { stage }: Shell, state: string): Promise<void> {
  const letters = loadFont();
  stage.measure();
  app.recolour();
  app.emit("select");
  await letters;
  forgetMeasures();
  await (state.length > 1 ? read(app, state) : app.openFirst());
}

export interface Mounted {
  app: App;
  close: () => void;
}

/** Build the page inside an element. Styles stay inside, and those of the surroundings outside. */
export function mount(host: HTMLElement, data: PageJson, state = "", darkAround?: () => boolean): Mounted {
  const app = new App(data);
  if (darkAround) app.darkAround = darkAround;
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  root.adoptedStyleSheets = [sheet];
  const parts = shell(app);
  root.replaceChildren(parts.element);
  void app.hold(() => first(app, parts, state)).then(() => {
    // The first picture is drawn in the next frame; who waits for it can see it here.
    requestAnimationFrame(() => requestAnimationFrame(() => (host.dataset.ready = "")));
  });
  const scheme = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const change = (): void => app.recolour();
  scheme?.addEventListener("change", change);
  return {
    app,
    close: () => {
      scheme?.removeEventListener("change", change);
      app.silence();
      root.replaceChildren();
    },
  };
}

/** The bytes of a text in base 64. */
function decoded(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

let loading: Promise<unknown> | null = null;

/** Resolves when the letters are there; without them the system's are used, and the page is as good. */
function loadFont(): Promise<unknown> {
  const bytes = decoded(inter.slice(inter.indexOf(",") + 1));
  loading ??= new FontFace("Inter Variable", bytes, { weight: "100 900" }).load()
    .then((face) => document.fonts.add(face), () => null);
  return loading;
}

/** Start the file page: the data is in the script element of that id, deflated and in base 64. */
export async function page(): Promise<void> {
  const host = document.getElementById("opgraph") as HTMLElement;
  const packed = new Blob([decoded(document.getElementById("opgraph-data")?.textContent ?? "")]);
  const data = new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
  const mounted = mount(host, (await data) as PageJson, location.hash);
  // What is there says that the page is being read.
  host.replaceChildren();
  bind(mounted.app);
  // A key that nothing has the focus for is the graph's.
  document.addEventListener("keydown", (event) => {
    const graph = host.shadowRoot?.querySelector("canvas.graph");
    if (event.target === document.body && !graph?.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
  });
  Object.assign(globalThis, { opgraphApp: mounted.app });
}

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
    const next = app.chosen && describe(app, app.chosen);
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

function describe(app: App, item: Item): Chosen {
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
