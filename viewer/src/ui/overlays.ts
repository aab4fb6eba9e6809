// What lies over the graph: the sentence that says where the cost is, with the whole as a row of folded modules; the note
// beside the pointer; and the whole picture in a corner, with a frame around what is seen.

import type { App } from "../app";
import type { Measure } from "../data/costs";
import { type Item, phaseOf } from "../data/tree";
import { overlaps, visible } from "../draw/camera";
import { SMALL } from "../draw/painter";
import { fit, measure } from "../draw/pen";
import { mix } from "../draw/theme";
import * as format from "../format";
import type { Box, Scene } from "../layout/scene";
import type { Rect } from "../layout/spec";
import { beside, div, fill, h, onFrame, p, span } from "./dom";
import { ending, hint, shareText } from "./parts";

/** Of the letters in the row, and the least room in which the beginning of a name says something. */
const LETTERS = 11;
const BEGINNING = 26;

export function headlineBar(app: App): HTMLElement {
  const sentence = p("sentence");
  const row = h("div", { class: "parts-row", role: "group", "aria-label": "Share of each part" });
  const second = h("div", { class: "parts-row second", "aria-hidden": "true" });
  const element = div("headline", sentence, row, second);
  const draw = (into: HTMLElement, parts: [Item, number][], whole: number): void => {
    // There is a pixel between two parts.
    const width = (into.clientWidth || row.clientWidth) - parts.length + 1;
    const endOf = (item: Item): string => (item.path || item.label).split(".").pop() ?? "";
    const ends = parts.map(([item]) => endOf(item));
    // Of two that end alike, the encoder's and the decoder's, what they are in is said, too.
    const within = (item: Item): string => {
      const path = item.path.split(".").slice(0, -ending(item).split(".").length);
      const around = path.findLast((part) => !/^\d+$/.test(part));
      return ends.filter((end) => end === endOf(item)).length > 1 && around ? `${around}.` : "";
    };
    fill(into, ...parts.map(([item, share]) => {
      // Of a node that is nearly all of its module, the module's name says more.
      const of = item.node >= 0 && !item.path && item.parent && app.colours.share(item.parent) * 0.9 < share;
      const named = of && item.parent ? item.parent : item;
      const phase = phaseOf(item);
      const name = `${phase}${phase ? " " : within(named)}${ending(named)}`;
      const room = (share / whole) * width - 8;
      const part = endOf(item);
      // The end of a path alone where no other part ends so: a backward's module is named as the forward's.
      const last = ends.filter((end) => end === part).length > 1 ? "" : /^\d+$/.test(part) ? `…${part}` : part;
      const text = [`${name} ${format.percent(share)}`, name, last].find((t) => t && measure(t, LETTERS) <= room) ??
        (room > BEGINNING ? fit(name, LETTERS, 400, room) : "");
      const { colour } = app.colours.look(item);
      return h("button", {
        type: "button", class: "parts-one", title: hint(app, item), "aria-label": hint(app, item),
        style: { "flex-grow": String(share / whole), "--part": colour },
        onclick: () => void app.select(item, true),
        onmouseenter: () => into === row && below(item, share),
      }, text);
    }));
  };
  const below = (item: Item, share: number): void => {
    const member = item.kind === "fold" ? item.children[0] : item;
    const parts = member.children.map((c): [Item, number] => [c, app.colours.share(c)]).filter(([, s]) => s > 0);
    second.classList.toggle("shown", parts.length > 1);
    draw(second, parts.length > 1 ? parts : [], share);
  };
  const paint = (): void => {
    const [said, meaning] = app.headline();
    // No line ends within the path of a fold.
    fill(sentence, ...said.split(/(\S*\[\S*)/).map((part) => (part.includes("[") ? span("whole", part) : part)));
    sentence.title = meaning;
    draw(row, app.row(), 1);
    second.classList.remove("shown");
  };
  element.addEventListener("mouseleave", () => second.classList.remove("shown"));
  app.on(paint, "look");
  new ResizeObserver(() => row.clientWidth && draw(row, app.row(), 1)).observe(row);
  return element;
}

/** Milliseconds that the pointer rests before anything is said. */
const REST = 180;

export function hoverCard(app: App): HTMLElement {
  const element = h("div", { class: "tip hover", hidden: true });
  let rest = 0;
  app.on(() => {
    clearTimeout(rest);
    element.hidden = true;
    const { hovered, pointer } = app;
    if (!hovered || !pointer) return;
    rest = window.setTimeout(() => {
      const [first, ...lines] = said(app, hovered);
      fill(element, h("b", null, first), ...lines.map((line) => div("", line)));
      element.hidden = false;
      beside(element, pointer.x, pointer.y + 12, app.size.width, app.size.height);
    }, REST);
  }, "hover");
  app.on(() => (element.hidden = true), "camera");
  return element;
}

/** Path, class, shapes, what it costs and its share, what it waits for, and where it is called. */
function said(app: App, box: Box): string[] {
  const { item } = box;
  const { costs, colours, model: { graph } } = app;
  const node = graph.nodes[item.node];
  const shapes = (values: number[]): string =>
    values.map((v) => graph.values[v]).filter((v) => v.kind !== "parameter" && v.kind !== "buffer")
      .map((v) => `${format.shape(v.shape)} ${v.dtype}`).join(", ");
  const measures: Measure[] = ["measured", "time", "flops", "bytes"];
  const bound = costs.bound(item);
  return [
    item.path || node?.name || item.label,
    [item.cls.split(".").pop(), node && node.op !== item.label ? node.op : "", graph.details[item.node]]
      .filter(Boolean).join(" · "),
    node ? [shapes(node.inputs), shapes(node.outputs)].filter(Boolean).join(" → ") : item.output && `→ ${item.output}`,
    ...measures.filter((m) => costs.item(m, item)).map((m) => `${shareText(m, costs.share(m, item))} of ${m === "time" ? `the predicted ${costs.timeOf}` : OF[m]}`),
    box.residuals ? `${format.plural(box.residuals, "residual")} within` : "",
    bound ? `${colours.marks.bounds[bound].label}, ${format.intensity(costs.intensity(item))} FLOPs/byte` : "",
    node?.source ?? "",
  ].filter(Boolean);
}

const OF: Partial<Record<Measure, string>> = { measured: "the measured time", flops: "the FLOPs", bytes: "the bytes moved" };

/** At most so many pixels. */
const WIDTH = 168;
const HEIGHT = 120;
const RIM = 6;
/** How far it is from the edges of the graph, and the corners that it may be in: whether at the right, and below. */
const AWAY = 12;
const CORNERS: [string, boolean, boolean][] = [
  ["auto 12px 12px auto", true, true], ["12px 12px auto auto", true, false], ["auto auto 12px 12px", false, true],
];

/** Whether there is neither a child of the whole, with the shape beneath it, nor an edge between them. */
function isClear({ root }: Scene, at: Rect): boolean {
  const taken: Rect[] = root.children.map(({ x, y, w, h }) => ({ x, y, w, h: h + SMALL * 2 }));
  for (const points of root.layout?.edges ?? []) {
    for (let k = 3; k < points.length; k += 2) {
      const [x0, y0, x1, y1] = points.subarray(k - 3, k + 1);
      const [x, y] = [Math.min(x0, x1), Math.min(y0, y1)];
      taken.push({ x: root.x + x, y: root.y + y, w: Math.abs(x1 - x0), h: Math.abs(y1 - y0) });
    }
  }
  return !taken.some((one) => overlaps(one, at));
}

export function minimap(app: App): HTMLElement {
  const canvas = h("canvas", { class: "minimap", "aria-label": "Overview", role: "img", title: "Drag to move" });
  const scale = globalThis.devicePixelRatio || 1;
  const ctx = canvas.getContext("2d") as CanvasRenderingContext2D;
  let picture: HTMLCanvasElement | null = null;
  let zoom = 1;

  /** As large as the graph asks for, so that it covers little of it. */
  const paint = (): void => {
    if (!app.scene) return;
    const { root, bounds } = app.scene;
    zoom = Math.min((WIDTH - 2 * RIM) / bounds.w, (HEIGHT - 2 * RIM) / bounds.h);
    const [width, height] = [bounds.w, bounds.h].map((side) => Math.ceil(side * zoom) + 2 * RIM);
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    picture = document.createElement("canvas");
    picture.width = canvas.width = width * scale;
    picture.height = canvas.height = height * scale;
    const pen = picture.getContext("2d") as CanvasRenderingContext2D;
    pen.setTransform(zoom * scale, 0, 0, zoom * scale, RIM * scale, RIM * scale);
    const draw = (box: Box): void => {
      if (box.parent) {
        pen.fillStyle = box.layout
          ? mix(app.theme.canvas, app.theme.nestBorder, 0.55)
          : mix(app.theme.canvas, app.colours.look(box.item).colour, 0.7);
        pen.fillRect(box.x, box.y, Math.max(box.w, 0.8 / zoom), Math.max(box.h, 0.8 / zoom));
      }
      if (box.h * zoom > 3) box.children.forEach(draw);
    };
    draw(root);
    frame();
  };
  const frame = (): void => {
    if (!picture || !app.scene) return;
    const { bounds } = app.scene;
    const { x, y, w, h: high } = visible(app.camera, app.size.width, app.size.height);
    const [wide, tall] = [canvas.width, canvas.height].map((side) => side / scale);
    const corner = CORNERS.find(([, right, low]) => isClear(app.scene as Scene, {
      x: x + (right ? app.size.width - wide - AWAY : AWAY) / app.camera.zoom,
      y: y + (low ? app.size.height - tall - AWAY : AWAY) / app.camera.zoom,
      w: wide / app.camera.zoom, h: tall / app.camera.zoom,
    }));
    if (corner && app.following) canvas.style.inset = corner[0];
    // Where everything is seen, an overview shows nothing; where it would lie on the first picture, it waits for the next.
    canvas.hidden = (x <= 0 && y <= 0 && x + w >= bounds.w && y + high >= bounds.h) || (app.following && !corner);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(picture, 0, 0);
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.strokeStyle = app.theme.accent;
    ctx.lineWidth = 1.5;
    const edge = (at: number, most: number): number => Math.min(most / scale - 1, Math.max(1, RIM + at * zoom));
    const [left, top] = [edge(x, canvas.width), edge(y, canvas.height)];
    ctx.strokeRect(
      left, top, Math.max(3, edge(x + w, canvas.width) - left), Math.max(3, edge(y + high, canvas.height) - top),
    );
  };
  const move = (event: PointerEvent): void => {
    const rect = canvas.getBoundingClientRect();
    const view = visible(app.camera, app.size.width, app.size.height);
    const x = (event.clientX - rect.left - RIM) / zoom;
    const y = (event.clientY - rect.top - RIM) / zoom;
    app.setCamera({ ...app.camera, x: x - view.w / 2, y: y - view.h / 2 });
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    move(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) move(event);
  });
  const whole = onFrame(paint);
  app.on(whole, "scene", "look");
  app.on(onFrame(frame), "camera");
  return canvas;
}
