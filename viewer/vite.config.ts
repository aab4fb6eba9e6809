/// <reference types="vitest/config" />
// One classic script, `viewer.js`, that defines `opgraph`: it is pasted into the file page and, with one
// more line, is the notebook's module. The font is inside it.
import { defineConfig } from "vite";

export default defineConfig({
  build: {
    target: "es2022",
    outDir: "../src/opgraph/views/page/assets",
    emptyOutDir: false,
    assetsInlineLimit: 1_000_000,
    lib: { entry: "src/main.ts", formats: ["iife"], name: "opgraph", fileName: () => "viewer.js" },
  },
  test: { include: ["test/**/*.test.ts"] },
});
