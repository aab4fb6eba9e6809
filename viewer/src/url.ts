// The state of the page in the fragment of its address, so that a view can be sent to someone else. What is
// as it would be without a fragment is left out.

import { type App, DOCKS } from "./app";
import { NO_FILTER, type Filter } from "./data/finding";
import { MAX_ZOOM, MIN_ZOOM, overlaps, visible } from "./draw/camera";
import { clamp } from "./ui/dom";

/** Sorted numbers as base-36 steps; a run of equal steps is written once. */
export function pack(ids: Iterable<number>): string {
  const sorted = [...ids].sort((a, b) => a - b);
  const steps: [string, number][] = [];
  let before = 0;
  for (const id of sorted) {
    const step = (id - before).toString(36);
    before = id;
    const last = steps[steps.length - 1];
    if (last?.[0] === step) last[1]++;
    else steps.push([step, 1]);
  }
  return steps.map(([step, times]) => (times > 1 ? `${step}*${times.toString(36)}` : step)).join(".");
}

export function unpack(text: string, most: number): number[] {
  const ids: number[] = [];
  let at = 0;
  for (const part of text.split(".")) {
    const [step, times] = part.split("*");
    const by = parseInt(step, 36);
    if (!Number.isFinite(by)) continue;
    for (let i = Math.min(times ? parseInt(times, 36) : 1, most); i > 0; i--) {
      at += by;
      if (at >= 0 && at < most) ids.push(at);
    }
  }
  return ids;
}

export function write(app: App): string {
  const state = new URLSearchParams();
  const { view, camera } = app;
  const open = pack(view.open);
  if (open !== pack(app.openAtFirst)) state.set("open", open);
  if (view.all.size) state.set("all", pack(view.all));
  const shown = [...view.shown].filter(([, k]) => k).map(([id, k]) => `${id}.${k}`);
  if (shown.length) state.set("shown", shown.join("_"));
  if (app.chosen) state.set("item", String(app.chosen.id));
  if (app.colours.mode !== app.firstMode) state.set("colour", app.colours.mode);
  if ((app.device?.id ?? "") !== app.firstDevice) state.set("device", app.device?.id ?? "none");
  if (app.sizes) state.set("sizes", app.sizes.join("~"));
  if (!app.plumbingHidden) state.set("reshapes", "1");
  if (app.themeChoice !== "auto") state.set("theme", app.themeChoice);
  if (app.query) state.set("find", app.query);
  if (app.moment !== null) state.set("moment", String(app.moment));
  if (app.dock) state.set("dock", app.dock);
  for (const [facet, values] of Object.entries(app.filter.facets)) {
    if (values?.length) state.set(`only-${facet}`, values.join("~"));
  }
  if (app.filter.least) state.set("least", `${app.filter.measure}~${app.filter.least}`);
  if (!app.following) state.set("at", [camera.x, camera.y, camera.zoom].map((v) => Number(v.toPrecision(6))).join("~"));
  return state.toString();
}

/** Set the app as a fragment says; what is not understood is passed over. */
export async function read(app: App, text: string): Promise<void> {
  const state = new URLSearchParams(text.replace(/^#/, ""));
  const { view, tree } = app;
  const count = tree.items.length;
  const open = state.get("open");
  if (open !== null) view.open = new Set([tree.root.id, ...unpack(open, count)]);
  else await app.openFirst();
  view.all = new Set(unpack(state.get("all") ?? "", count));
  view.shown = new Map();
  for (const pair of (state.get("shown") ?? "").split("_")) {
    const [id, k] = pair.split(".").map(Number);
    if (tree.items[id]?.kind === "fold" && k < tree.items[id].children.length) view.shown.set(id, k);
  }
  app.colours.mode = app.modes().find(([mode]) => mode === state.get("colour"))?.[0] ?? app.firstMode;
  const theme = state.get("theme");
  app.themeChoice = theme === "light" || theme === "dark" ? theme : "auto";
  app.setDevice(state.get("device") ?? app.firstDevice);
  app.dock = DOCKS.find((dock) => dock === state.get("dock")) ?? "";
  app.emit("dock");
  const sizes = state.get("sizes")?.split("~").map(Number) ?? [];
  if (!app.setSizes(sizes.length ? sizes : null)) app.setSizes(null);
  const hidden = state.get("reshapes") !== "1";
  if (hidden !== app.plumbingHidden) await app.setPlumbingHidden(hidden);
  const at = state.get("at")?.split("~").map(Number);
  app.following = true;
  await app.update();
  if (at?.length === 3 && at.every(Number.isFinite)) {
    app.setCamera({ x: at[0], y: at[1], zoom: clamp(at[2], MIN_ZOOM, MAX_ZOOM) });
    const { scene, camera, size } = app;
    if (!scene || !overlaps(scene.bounds, visible(camera, size.width, size.height))) app.fit();
  }
  app.recolour();
  const item = tree.items[Number(state.get("item") ?? -1)] ?? null;
  await app.select(item);
  const filter = readFilter(state);
  if (filter.least || Object.keys(filter.facets).length) app.setFilter(filter);
  if (state.get("find")) app.search(state.get("find") ?? "");
  const moment = state.get("moment");
  if (moment !== null && Number(moment) >= 0 && Number(moment) < app.memory.kernels) app.setMoment(Number(moment));
}

function readFilter(state: URLSearchParams): Filter {
  const facets: Filter["facets"] = {};
  for (const facet of ["op", "bound", "dtype", "fragment", "phase"] as const) {
    const values = state.get(`only-${facet}`);
    if (values) facets[facet] = values.split("~");
  }
  const [measure, least] = (state.get("least") ?? "").split("~");
  const known = (["flops", "bytes", "time", "measured", "memory"] as const).find((m) => m === measure);
  return known && Number(least) > 0 ? { facets, measure: known, least: Number(least) } : { ...NO_FILTER, facets };
}

/** Keep the fragment in step with the app, both ways. */
export function bind(app: App): void {
  let pause = 0;
  let own = "";
  const keep = (): void => {
    clearTimeout(pause);
    pause = window.setTimeout(() => {
      own = write(app);
      const hash = own ? `#${own}` : "#";
      if (hash === location.hash || (!own && !location.hash)) return;
      try {
        history.replaceState(null, "", hash);
      } catch {
        location.hash = hash;
      }
    }, 300);
  };
  app.on(keep, "scene", "select", "look", "lit", "camera", "search", "dock");
  window.addEventListener("hashchange", () => {
    const text = location.hash.slice(1);
    if (text !== own) void read(app, text);
  });
}
