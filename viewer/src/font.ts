// The letters of the page travel with it, since a page on a disk cannot fetch them.

import inter from "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?inline";

let loading: Promise<void> | null = null;

/** Resolves when the letters are there; without them the system's are used. */
export function loadFont(): Promise<void> {
  loading ??= (async () => {
    try {
      const encoded = inter.slice(inter.indexOf(",") + 1);
      const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
      const face = new FontFace("Inter Variable", bytes, { weight: "100 900" });
      document.fonts.add(await face.load());
    } catch {
      // The page is as good with other letters.
    }
  })();
  return loading;
}
