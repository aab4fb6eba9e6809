// Do the modules of the viewer import in one direction? Exit status 1 and every circle if not. Imports of types
// count, too: what two modules know of each other belongs beneath both.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "src");
const files = readdirSync(root, { recursive: true }).filter((name) => name.endsWith(".ts"));
const imports = new Map(files.map((name) => [name, imported(name)]));

function imported(name) {
  const text = readFileSync(join(root, name), "utf8");
  const found = [...text.matchAll(/^(?:import|export)\b[^;]*?\bfrom "(\.[^"?]*)/gms)].map(([, path]) => {
    return `${relative(root, resolve(root, dirname(name), path))}.ts`;
  });
  return found.filter((path) => existsSync(join(root, path)));
}

const done = new Set();
const circles = new Set();

function visit(name, way) {
  if (way.includes(name)) {
    const circle = way.slice(way.indexOf(name));
    const first = circle.indexOf(circle.toSorted()[0]);
    circles.add([...circle.slice(first), ...circle.slice(0, first), circle[first]].join(" -> "));
  } else if (!done.has(name)) {
    for (const next of imports.get(name) ?? []) visit(next, [...way, name]);
    done.add(name);
  }
}

for (const name of files) visit(name, []);
for (const circle of circles) console.error(`error: circle ${circle}`);
if (circles.size) process.exitCode = 1;
