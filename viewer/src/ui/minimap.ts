// The whole picture in a corner, with a frame around what is seen.

import type { App } from "../app";
import { visible } from "../draw/camera";
import { mix } from "../draw/theme";
import type { Box } from "../layout/scene";
import { h, onFrame } from "./dom";

const WIDTH = 168;
const HEIGHT = 120;

export function minimap(app: App): HTMLElement {
  const canvas = h("canvas", { class: "minimap", "aria-label": "Overview", role: "img", title: "Drag to move" });
  const scale = globalThis.devicePixelRatio || 1;
  canvas.width = WIDTH * scale;
  canvas.height = HEIGHT * scale;
  const ctx = canvas.getContext("2d") as CanvasRenderingContext2D;
  let picture: HTMLCanvasElement | null = null;
  let zoom = 1;
  let left = 0;
  let top = 0;

  const paint = (): void => {
    const root = app.scene?.root;
    if (!root) return;
    zoom = Math.min((WIDTH - 12) / root.w, (HEIGHT - 12) / root.h);
    left = (WIDTH - root.w * zoom) / 2;
    top = (HEIGHT - root.h * zoom) / 2;
    picture = document.createElement("canvas");
    picture.width = canvas.width;
    picture.height = canvas.height;
    const pen = picture.getContext("2d") as CanvasRenderingContext2D;
    pen.scale(scale, scale);
    const draw = (box: Box): void => {
      const w = box.w * zoom;
      const height = box.h * zoom;
      if (box.parent) {
        const look = app.colours.look(box.item);
        pen.fillStyle = box.layout
          ? mix(app.theme.canvas, app.theme.nestBorder, 0.55)
          : mix(app.theme.canvas, look.colour, 0.7);
        pen.fillRect(left + box.x * zoom, top + box.y * zoom, Math.max(w, 0.8), Math.max(height, 0.8));
      }
      if (height > 3) box.children.forEach(draw);
    };
    draw(root);
    frame();
  };
  const frame = (): void => {
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, WIDTH, HEIGHT);
    if (!picture || !app.scene) return;
    const { root } = app.scene;
    const all = visible(app.camera, app.size.width, app.size.height);
    // Where everything is seen, an overview shows nothing.
    canvas.hidden = all.x <= 0 && all.y <= 0 && all.x + all.w >= root.w && all.y + all.h >= root.h;
    ctx.drawImage(picture, 0, 0, WIDTH, HEIGHT);
    const view = visible(app.camera, app.size.width, app.size.height);
    ctx.strokeStyle = app.theme.accent;
    ctx.lineWidth = 1.5;
    const x = Math.max(1, left + view.x * zoom);
    const y = Math.max(1, top + view.y * zoom);
    ctx.strokeRect(
      x, y, Math.max(3, Math.min(WIDTH - 1, left + (view.x + view.w) * zoom) - x),
      Math.max(3, Math.min(HEIGHT - 1, top + (view.y + view.h) * zoom) - y),
    );
  };
  const move = (event: PointerEvent): void => {
    const rect = canvas.getBoundingClientRect();
    const view = visible(app.camera, app.size.width, app.size.height);
    const x = (event.clientX - rect.left - left) / zoom;
    const y = (event.clientY - rect.top - top) / zoom;
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
  app.on("scene", whole);
  app.on("look", whole);
  app.on("camera", onFrame(frame));
  return canvas;
}
