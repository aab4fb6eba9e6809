// Making elements. Strings become text nodes and nothing else, so that no name of a model is ever markup.

export type Child = Node | string | number | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => void };
export type Props = Handlers & {
  class?: string;
  title?: string;
  style?: Record<string, string>;
  data?: Record<string, string>;
  [attribute: string]: unknown;
};

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Props | null, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value as EventListener);
    else if (key === "style") for (const [k, v] of Object.entries(value as object)) element.style.setProperty(k, v);
    else if (key === "data") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

const made = (tag: "div" | "span" | "p") => (cls: string, ...children: Child[]): HTMLElement =>
  h(tag, { class: cls }, ...children);

/** The plainest elements: a class, and what is in them. */
export const [div, span, p] = [made("div"), made("span"), made("p")];

/** A button with a name, or what else is in it. */
export function press(name: Child | Child[], run: () => void, props: Props = {}): HTMLButtonElement {
  return h("button", { type: "button", onclick: run, ...props }, ...[name].flat());
}

/** A text whose ranges (`h.[0-11]`) are not broken at the end of a line. */
export function unbroken(text: Child): Child[] {
  if (typeof text !== "string") return [text];
  return text.split(/(\[\d+-\d+\])/).map((part, i) => (i % 2 ? span("whole", part) : part));
}

export function append(element: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, ...children);
}

/** Fill anew what has the focus in it, or is scrolled: by their `data-key`, what had the focus has it again. */
export function refill(element: Element, ...children: Child[]): void {
  const root = element.getRootNode() as Document | ShadowRoot;
  const focused = (root.activeElement as HTMLElement | null)?.dataset.key;
  const { scrollTop } = element;
  fill(element, ...children);
  element.scrollTop = scrollTop;
  const again = [...element.querySelectorAll<HTMLElement>("[data-key]")].find((e) => focused && e.dataset.key === focused);
  again?.focus({ preventScroll: true });
}

const SVG = "http://www.w3.org/2000/svg";

/** An icon from the `d` of its strokes, on a grid of 16. */
export function icon(d: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  svg.append(path);
  return svg;
}

export const ICONS = {
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.5 10.5 14 14",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  open: "M4 6l4-3 4 3M4 10l4 3 4-3",
  close: "M4 3l4 3 4-3M4 13l4-3 4 3",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7" +
    "M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  filter: "M2 3.5h12L9.5 9v4l-3-1.5V9Z",
  download: "M8 2.5v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10",
  help: "M6 6a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1v.4M8 11.7v.1M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8Z",
  table: "M2.5 3.5h11v9h-11ZM2.5 6.5h11M6.5 6.5v6",
  panel: "M2.5 3.5h11v9h-11ZM9.5 3.5v9",
  cross: "M4 4l8 8M12 4l-8 8",
  prev: "M10 3 5 8l5 5",
  next: "M6 3l5 5-5 5",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8Z",
  sizes: "M2.5 4.500h5M11 4.500h2.500M9 2.700v3.600M2.500 11.500h2M8 11.500h5.500M6.200 9.700v3.600",
  link: "M6.500 9.500 9.500 6.500M7 4.500l1-1a3 3 0 0 1 4.500 4.500l-1 1M9 11.500l-1 1A3 3 0 0 1 3.500 8l1-1",
} as const;

export function button(label: string, d: string, click: () => void, props: Props = {}): HTMLButtonElement {
  return press(icon(d), click, { class: "tool", title: label, "aria-label": label, ...props });
}

/** Calls `run` once per frame at most, however often it is asked. */
export function onFrame(run: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
}

/** Do what belongs to a key, and nothing else then. */
export function onKey(event: KeyboardEvent, actions: Record<string, () => unknown>): void {
  const action = actions[event.key] ?? actions[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

/** Put a note beside a point of what holds it: to the right and below where there is room, and always inside. */
export function beside(note: HTMLElement, x: number, y: number, width: number, height: number): void {
  const { offsetWidth, offsetHeight } = note;
  const left = x + 15 + offsetWidth > width ? x - 15 - offsetWidth : x + 15;
  note.style.left = `${Math.max(3, left)}px`;
  note.style.top = `${Math.max(3, Math.min(y, height - offsetHeight - 3))}px`;
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}

/** Copy a text to the clipboard; where a page may not, through a text field. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", { class: "offscreen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
