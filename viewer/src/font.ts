// The letters of the page travel with it, since a page on a disk cannot fetch them.

import inter from "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?inline";

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
