// Is the committed bundle what the source builds? Exit status 1 if not.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = dirname(fileURLToPath(import.meta.url));
const committed = join(root, "../src/opgraph/views/page/assets/viewer.js");
const folder = mkdtempSync(join(tmpdir(), "opgraph-viewer-"));
try {
  await build({ root, logLevel: "error", build: { outDir: folder } });
  if (readFileSync(join(folder, "viewer.js"), "utf8") !== readFileSync(committed, "utf8")) {
    console.error("error: src/opgraph/views/page/assets/viewer.js is not what viewer/ builds");
    console.error("hint: npm run build in viewer/, and commit the result");
    process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
