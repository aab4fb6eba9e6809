// The canvas with the graph: draws when something has changed, and turns the pointer and the keyboard into
// calls of the app.

import type { App } from "../app";
import { type Camera, innermost, type Inset, mixed, zoomed } from "../draw/camera";
import { CanvasPen } from "../draw/pen";
import { HEADER } from "../layout/spec";
import type { Box } from "../layout/scene";
import { div, h, onFrame, onKey } from "./dom";
import { paint } from "./export";

const DOUBLE_CLICK = 350;

export class Stage {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private ctx: CanvasRenderingContext2D;
  private pointers = new Map<number, { x: number; y: number }>();
  private dragged = false;
  private lastClick: { time: number; x: number; y: number; box: Box; open: boolean } | null = null;
  private flight = 0;
  private redraw: () => void;
  /** Where the camera stood, in pixels, in the picture that is on the canvas; null where it is out of date. */
  private drawn: { x: number; y: number; scale: number } | null = null;

  constructor(private app: App, private tools: HTMLElement) {
    this.canvas = h("canvas", {
      class: "graph", tabindex: "0", role: "application",
      "aria-label": "Operator graph. Arrow keys move, Enter opens and closes, plus and minus zoom, F fits.",
    });
    this.ctx = this.canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.element = div("stage", this.canvas);
    this.redraw = onFrame(() => this.draw());
    app.on(this.redraw, "camera");
    app.on(() => {
      this.drawn = null;
      this.redraw();
    }, "scene", "select", "look", "lit", "hover", "search");
    new ResizeObserver(() => this.measure()).observe(this.element);
    this.listen();
  }

  measure(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const scale = globalThis.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.app.resize(width, height, this.inset());
    this.drawn = null;
    this.draw();
  }

  /** The tools stand at the upper left: one below the other, or side by side. */
  private inset(): Inset {
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.tools;
    return offsetHeight > offsetWidth
      ? { left: offsetLeft + offsetWidth, top: 0 }
      : { left: 0, top: offsetTop + offsetHeight };
  }

  /** Draw what the camera shows. Where it only moved, what is still in sight is copied and the rest drawn. */
  draw(): void {
    const { ctx, canvas, drawn } = this;
    const { camera } = this.app;
    const scale = camera.zoom * (globalThis.devicePixelRatio || 1);
    // At whole pixels, so that a copy is as sharp as what it is a copy of.
    const now = { x: Math.round(camera.x * scale), y: Math.round(camera.y * scale), scale };
    this.drawn = now;
    const { width, height } = canvas;
    const dx = drawn ? drawn.x - now.x : width;
    const dy = drawn ? drawn.y - now.y : height;
    if (drawn?.scale !== scale || Math.abs(dx) >= width || Math.abs(dy) >= height) {
      this.paint(0, 0, width, height);
      return;
    }
    if (!dx && !dy) return;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.globalAlpha = 1;
    ctx.drawImage(canvas, dx, dy);
    if (dx) this.paint(dx > 0 ? 0 : width + dx, 0, Math.abs(dx), height);
    if (dy) this.paint(0, dy > 0 ? 0 : height + dy, width, Math.abs(dy));
  }

  /** Draw a part of the canvas, given in its pixels. */
  private paint(x: number, y: number, width: number, height: number): void {
    const { app, ctx, drawn } = this;
    const { theme, scene, camera } = app;
    if (!drawn) return;
    ctx.save();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.beginPath();
    ctx.rect(x, y, width, height);
    ctx.clip();
    ctx.globalAlpha = 1;
    ctx.fillStyle = theme.canvas;
    ctx.fillRect(x, y, width, height);
    if (scene) {
      const { scale } = drawn;
      ctx.setTransform(scale, 0, 0, scale, -drawn.x, -drawn.y);
      ctx.lineJoin = "round";
      ctx.lineCap = "round";
      // Rings, stacks and badges stand a little out of their boxes.
      const out = 20 + 8 / camera.zoom;
      const view = {
        x: (drawn.x + x) / scale - out, y: (drawn.y + y) / scale - out, w: width / scale + 2 * out,
        h: height / scale + 2 * out,
      };
      paint(app, new CanvasPen(ctx, scale, view), camera, view);
    }
    ctx.restore();
  }

  /** Move the camera there in a moment, or at once for those who want no motion. */
  fly(to: Camera): void {
    const from = this.app.camera;
    const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches;
    cancelAnimationFrame(this.flight);
    if (still) return this.app.setCamera(to);
    const start = performance.now();
    const step = (now: number): void => {
      const t = Math.min(1, (now - start) / 220);
      this.app.setCamera(mixed(from, to, 1 - (1 - t) ** 3));
      if (t < 1) this.flight = requestAnimationFrame(step);
    };
    this.flight = requestAnimationFrame(step);
  }

  /** The innermost box under a point of the screen. */
  boxAt(sx: number, sy: number): Box | null {
    const { scene, camera } = this.app;
    return scene && innermost(scene, camera, sx, sy);
  }

  private listen(): void {
    const { canvas, app } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, point(event, canvas));
      this.dragged = false;
      cancelAnimationFrame(this.flight);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => {
      const single = this.pointers.size === 1;
      this.pointers.delete(event.pointerId);
      canvas.classList.remove("dragging");
      if (single && !this.dragged && event.button === 0) this.click(event);
    });
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      app.pointer = null;
      if (app.hovered) {
        app.hovered = null;
        app.emit("hover");
      }
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { app } = this;
    const at = point(event, this.canvas);
    // A trackpad moves in small steps and sideways; a wheel in large ones.
    const trackpad = !event.ctrlKey && event.deltaMode === 0 && (event.deltaX !== 0 || Math.abs(event.deltaY) < 40);
    if (trackpad) {
      const { camera } = app;
      app.setCamera({ ...camera, x: camera.x + event.deltaX / camera.zoom, y: camera.y + event.deltaY / camera.zoom });
      return;
    }
    const amount = event.deltaY * (event.deltaMode === 1 ? 20 : 1) * (event.ctrlKey ? 3 : 1);
    app.setCamera(zoomed(app.camera, Math.exp(-Math.max(-400, Math.min(400, amount)) * 0.0018), at.x, at.y));
  }

  private move(event: PointerEvent): void {
    const { app } = this;
    const now = point(event, this.canvas);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      const box = this.boxAt(now.x, now.y);
      this.canvas.style.cursor = box ? "pointer" : "";
      app.pointer = now;
      if (box !== app.hovered) {
        app.hovered = box;
        app.emit("hover");
      }
      return;
    }
    if (!this.dragged && Math.hypot(now.x - before.x, now.y - before.y) < 4) return;
    this.dragged = true;
    this.canvas.classList.add("dragging");
    const { camera } = app;
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1] ?? before;
      const factor = Math.hypot(
        now.x - other.x, now.y - other.y,
      ) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      app.setCamera(zoomed(camera, factor, (now.x + other.x) / 2, (now.y + other.y) / 2));
    } else {
      app.setCamera(
        { ...camera, x: camera.x - (now.x - before.x) / camera.zoom, y: camera.y - (now.y - before.y) / camera.zoom }
      );
    }
    this.pointers.set(event.pointerId, now);
  }

  private click(event: PointerEvent): void {
    const { app } = this;
    const at = point(event, this.canvas);
    const last = this.lastClick;
    this.canvas.focus({ preventScroll: true });
    if (last && event.timeStamp - last.time < DOUBLE_CLICK && Math.hypot(at.x - last.x, at.y - last.y) < 6) {
      // The second click of two goes on with what the first began, all the way down.
      this.lastClick = null;
      const box = app.box(last.box.item) ?? last.box;
      void app.toggle(box, true, last.open);
      return;
    }
    this.lastClick = null;
    const box = this.boxAt(at.x, at.y);
    if (!box) {
      void app.select(null);
      return;
    }
    const open = app.view.isOpen(box.key);
    const onHeader = (at.y / app.camera.zoom + app.camera.y - box.y) < Math.max(HEADER, 22 / app.camera.zoom);
    void app.select(box.item);
    if (box.item.children.length && (!open || onHeader)) {
      this.lastClick = { time: event.timeStamp, x: at.x, y: at.y, box, open: !open };
      void app.toggle(box);
    }
  }

  private key(event: KeyboardEvent): void {
    const { app } = this;
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const { width, height } = app.size;
    const box = app.box(app.selected);
    const zoom = (by: number): void => this.fly(zoomed(app.camera, by, width / 2, height / 2));
    const pan = (x: number, y: number): void => {
      const { camera } = app;
      app.setCamera({ ...camera, x: camera.x + (80 * x) / camera.zoom, y: camera.y + (80 * y) / camera.zoom });
    };
    onKey(event, {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      ArrowLeft: () => {
        const parent = box?.parent;
        if (parent?.parent) this.choose(parent);
      },
      ArrowRight: () => {
        if (box && box.children.length) this.choose(box.children[0]);
        else if (box && box.key.children.length) void app.toggle(box, false, true);
      },
      Enter: () => box && void app.toggle(box, event.shiftKey),
      " ": () => box && void app.toggle(box, event.shiftKey),
      "+": () => zoom(1.4),
      "=": () => zoom(1.4),
      "-": () => zoom(1 / 1.4),
      f: () => app.fit(),
      "0": () => app.fit(),
      g: () => app.selected && app.bring(app.selected, true),
      e: () => void app.openAll(true, event.shiftKey),
      c: () => void app.openAll(false),
      r: () => void app.resetOpen(),
      ",": () => box?.layout && void app.stepMember(box, -1),
      ".": () => box?.layout && void app.stepMember(box, 1),
      w: () => pan(0, -1),
      s: () => pan(0, 1),
      a: () => pan(-1, 0),
      d: () => pan(1, 0),
    });
  }

  /** The box drawn before or after the chosen one, in the order of execution. */
  private step(by: number): void {
    const boxes = this.app.scene?.boxes ?? [];
    const box = this.app.box(this.app.selected);
    if (!boxes.length) return;
    const at = box ? boxes.indexOf(box) : -1;
    this.choose(boxes[Math.min(boxes.length - 1, Math.max(0, at + by))]);
  }

  private choose(box: Box): void {
    void this.app.select(box.item);
    this.app.bring(box.item);
  }
}

function point(event: MouseEvent, canvas: HTMLElement): { x: number; y: number } {
  const rect = canvas.getBoundingClientRect();
  return { x: event.clientX - rect.left, y: event.clientY - rect.top };
}
