// Building the page inside an element, for a file and for a notebook.

import { App } from "./app";
import type { PageJson } from "./data/document";
import { forgetMeasures } from "./draw/pen";
import { loadFont } from "./font";
import style from "./ui/style.css?inline";
import { type Shell, shell } from "./ui/shell";
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
