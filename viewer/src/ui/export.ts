// What is seen, as a picture: SVG, or PNG at twice the screen's scale; as a card of 1200 x 630 to be shown where links are;
// and on paper: the graph, the legend and what the panel says, in the light theme, made when printing starts.

import type { App } from "../app";
import { type Camera, fitted, visible } from "../draw/camera";
import { Painter } from "../draw/painter";
import { CanvasPen, fit, measure, type Pen, SvgPen } from "../draw/pen";
import { mix } from "../draw/theme";
import * as format from "../format";
import type { Rect } from "../layout/spec";
import { fill, h } from "./dom";

interface Shot {
  camera: Camera;
  width: number;
  height: number;
}

/** The view as it is on the screen. */
export function seen(app: App): Shot {
  return { camera: app.camera, ...app.size };
}

/** The whole graph, as large as it is read well, within what a bitmap can be. */
export function whole(app: App): Shot {
  const bounds = app.scene?.bounds ?? { x: 0, y: 0, w: 100, h: 100 };
  const scale = Math.min(1, 7000 / Math.max(bounds.w, bounds.h));
  const [width, height] = [bounds.w, bounds.h].map((side) => Math.ceil(side * scale));
  return { camera: fitted(bounds, width, height, 0), width, height };
}

/** What a camera shows of the graph. */
export function paint(app: App, pen: Pen, { zoom }: Camera, view: Rect, marks = app.marks()): void {
  if (app.scene) new Painter(app.model.graph, app.colours, app.theme, zoom, view, marks).paint(app.scene, pen);
}

export function svg(app: App, shot: Shot): string {
  const view = visible(shot.camera, shot.width, shot.height);
  const pen = new SvgPen();
  paint(app, pen, shot.camera, view);
  return pen.end(view, shot.width, shot.height, app.theme.canvas, app.model.name);
}

export async function png(app: App, shot: Shot, scale = 2): Promise<Blob> {
  const [ctx, done] = bitmap(Math.ceil(shot.width * scale), Math.ceil(shot.height * scale));
  ctx.fillStyle = app.theme.canvas;
  ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
  const k = shot.camera.zoom * scale;
  ctx.setTransform(k, 0, 0, k, -shot.camera.x * k, -shot.camera.y * k);
  const view = visible(shot.camera, shot.width, shot.height);
  paint(app, new CanvasPen(ctx, k), shot.camera, view);
  return done();
}

/** Something to draw on, and how to have it as a PNG. */
export function bitmap(width: number, height: number): [CanvasRenderingContext2D, () => Promise<Blob>] {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const ctx = canvas.getContext("2d") as CanvasRenderingContext2D;
  ctx.lineJoin = ctx.lineCap = "round";
  return [ctx, () => new Promise(
    (done, failed) => canvas.toBlob(
      (blob) => (blob ? done(blob) : failed(new Error("the picture is too large"))), "image/png",
    )
  )];
}

/** Hand a file to the person. */
export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function fileName(app: App, suffix: string): string {
  return `${app.model.name.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80) || "graph"}.${suffix}`;
}

export const CARD = { width: 1200, height: 630 };
const LEFT = 52;
/** Where the graph begins. */
const GRAPH = 700;

/** The card at twice its size. */
export function card(app: App): Promise<Blob> {
  const { theme, costs, scene, device } = app;
  const { width, height } = CARD;
  const [ctx, done] = bitmap(width * 2, height * 2);
  ctx.setTransform(2, 0, 0, 2, 0, 0);
  const pen = new CanvasPen(ctx, 2);
  pen.rect(0, 0, width, height, 0, { fill: theme.card });
  const room = GRAPH - LEFT - 40;
  pen.text(app.model.name, LEFT, 110, { size: 46, weight: 700, fill: theme.text, max: room });
  pen.text(app.model.cls.split(".").pop() ?? "", LEFT, 148, { size: 22, fill: theme.muted, max: room });
  const timed = costs.total("time") > 0 && device;
  const figures: [string, string][] = [
    [format.count(costs.parameterCount(app.tree.root)), "parameters"],
    [format.count(costs.total("flops")), "FLOPs"],
    timed ? [format.seconds(timed.seconds), "predicted"] : [format.size(costs.total("bytes")), "moved"],
  ];
  figures.forEach(([value, name], i) => {
    const x = LEFT + (i * room) / 3;
    pen.text(value, x, 240, { size: 36, weight: 650, fill: theme.text, max: room / 3 - 12 });
    pen.text(name, x, 268, { size: 18, fill: theme.muted });
  });
  lines(app.headline()[0], 22, room).slice(0, 5).forEach((line, i) =>
    pen.text(line, LEFT, 330 + i * 32, { size: 22, fill: theme.text }),
  );
  let x = LEFT;
  for (const [item, share] of app.row()) {
    const { colour } = app.colours.look(item);
    const w = share * room;
    pen.rect(x, 508, Math.max(w - 1.5, 0.8), 44, 3, { fill: mix(theme.card, colour, 0.45) });
    pen.rect(x, 546, Math.max(w - 1.5, 0.8), 6, 1, { fill: colour });
    if (w > 46) pen.text(item.label, x + 7, 534, { size: 16, fill: theme.text, max: w - 12 });
    x += w;
  }
  pen.text("opgraph", LEFT, 596, { size: 20, weight: 600, fill: theme.accent });
  if (scene) {
    const wide = width - GRAPH;
    const camera = fitted(scene.bounds, wide, height, 18);
    pen.rect(GRAPH, 0, wide, height, 0, { fill: theme.canvas });
    const k = camera.zoom * 2;
    ctx.setTransform(k, 0, 0, k, GRAPH * 2 - camera.x * k, -camera.y * k);
    const marks = { ...app.marks(), selected: null, hovered: null, current: null, into: [], out: [] };
    paint(app, new CanvasPen(ctx, k), camera, visible(camera, wide, height), marks);
  }
  return done();
}

/** A text in lines that fit. */
function lines(text: string, size: number, room: number): string[] {
  const found = [""];
  for (const word of text.split(" ")) {
    const longer = `${found[found.length - 1]} ${word}`.trim();
    if (measure(longer, size, 400) <= room) found[found.length - 1] = longer;
    else found.push(fit(word, size, 400, room));
  }
  return found;
}

export function paper(app: App, parts: () => HTMLElement[]): HTMLElement {
  const element = h("section", { class: "paper" });
  let theme = app.themeChoice;
  const before = (): void => {
    theme = app.themeChoice;
    app.setTheme("light");
    fill(element, h("h1", null, app.model.name), picture(app), ...parts().map(still));
  };
  const after = (): void => {
    fill(element);
    app.setTheme(theme);
  };
  for (const [event, act] of [["beforeprint", before], ["afterprint", after]] as const) {
    const listen = (): void => (element.isConnected ? act() : globalThis.removeEventListener(event, listen));
    globalThis.addEventListener(event, listen);
  }
  return element;
}

function picture(app: App): Node {
  const drawn = new DOMParser().parseFromString(svg(app, seen(app)), "image/svg+xml");
  return document.importNode(drawn.documentElement, true);
}

/** A part as it is now, without what is there to be clicked. */
function still(part: HTMLElement): HTMLElement {
  const copy = part.cloneNode(true) as HTMLElement;
  copy.removeAttribute("hidden");
  for (const tool of copy.querySelectorAll(".tool, .panel-tools, .choices")) tool.remove();
  return copy;
}
