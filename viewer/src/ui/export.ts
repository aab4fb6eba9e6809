// What is seen, as a picture: SVG, or PNG at twice the screen's scale.

import type { App } from "../app";
import { type Camera, fitted, visible } from "../draw/camera";
import { Painter } from "../draw/painter";
import { CanvasPen, SvgPen } from "../draw/pen";
import { h } from "./dom";

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
  const { w = 100, h: height = 100 } = app.scene?.root ?? {};
  const scale = Math.min(1, 7000 / Math.max(w, height));
  const size = { width: Math.ceil(w * scale), height: Math.ceil(height * scale) };
  return { camera: fitted({ x: 0, y: 0, w, h: height }, size.width, size.height, 0), ...size };
}

export function svg(app: App, shot: Shot): string {
  const view = visible(shot.camera, shot.width, shot.height);
  const pen = new SvgPen();
  if (app.scene) {
    new Painter(app.model.graph, app.colours, app.theme, shot.camera.zoom, view, app.marks()).paint(app.scene, pen);
  }
  return pen.end(view, shot.width, shot.height, app.theme.canvas, app.model.name);
}

export async function png(app: App, shot: Shot, scale = 2): Promise<Blob> {
  const [ctx, done] = bitmap(Math.ceil(shot.width * scale), Math.ceil(shot.height * scale));
  ctx.fillStyle = app.theme.canvas;
  ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
  const k = shot.camera.zoom * scale;
  ctx.setTransform(k, 0, 0, k, -shot.camera.x * k, -shot.camera.y * k);
  const view = visible(shot.camera, shot.width, shot.height);
  if (app.scene) {
    new Painter(app.model.graph, app.colours, app.theme, shot.camera.zoom, view, app.marks())
      .paint(app.scene, new CanvasPen(ctx, k));
  }
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
