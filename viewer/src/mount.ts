// Building the page inside an element, for a file and for a notebook, in letters that travel with it: a page on a disk
// cannot fetch them.

import inter from "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?inline";
import { App } from "./app";
import type { PageJson } from "./data/document";
import { forgetMeasures } from "./draw/pen";
import { type Shell, shell } from "./ui/shell";
import style from "./ui/style.css?inline";
import { read } from "./url";

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
export function decoded(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

let loading: Promise<void> | null = null;

/** Resolves when the letters are there; without them the system's are used. */
export function loadFont(): Promise<void> {
  loading ??= (async () => {
    try {
      const face = new FontFace("Inter Variable", decoded(inter.slice(inter.indexOf(",") + 1)), { weight: "100 900" });
      document.fonts.add(await face.load());
    } catch {
      // The page is as good with other letters.
    }
  })();
  return loading;
}
