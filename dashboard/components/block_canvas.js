// Draws one cell per block. All text goes in by textContent, so a recorded string stays text.
const GUTTER = 46, LARGE = 80, LARGEST = 96, NAMED_PITCH = 30, LIT = 1, LEAK = 2, OWNER_UNKNOWN = 4;
const STATES = ["free", "cached", "active"];

function bytesOf(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

function decode(data) {
  return {
    ...data,
    classes: new Uint8Array(bytesOf(data.classes)), flags: new Uint8Array(bytesOf(data.flags)),
    state: new Uint8Array(bytesOf(data.state)), count: new Uint16Array(bytesOf(data.count)),
    owner: new Int32Array(bytesOf(data.owner)), tenant: new Uint16Array(bytesOf(data.tenant)),
    age: new Float32Array(bytesOf(data.age)), filled: new Int16Array(bytesOf(data.filled)),
  };
}

// The largest cells with which the map is as wide as its place and not too tall. Columns are a
// multiple of 8, so that ids line up by eye.
function layoutFor(total, width) {
  const room = Math.max(width - GUTTER, 64), height = width < 640 ? 760 : 540;
  let columns = 8, pitch = 0, rows = 0;
  for (; ; columns += 8) {
    pitch = Math.max(3, Math.min(LARGEST, Math.floor(room / columns)));
    rows = Math.ceil(total / columns);
    const tooLarge = pitch > LARGE && columns < 16 && total > 8;
    if (!tooLarge && (rows * pitch <= height || Math.floor(room / (columns + 8)) < 3)) break;
  }
  columns = Math.max(1, Math.min(columns, total));
  return { pitch, columns, rows: Math.ceil(total / columns), gap: pitch >= 10 ? 2 : 1 };
}

function hatch(context, x, y, side) {
  context.beginPath();
  for (let k = 0; k < side * 2; k += 3) {
    context.moveTo(x + Math.min(k, side), y + Math.max(0, k - side));
    context.lineTo(x + Math.max(0, k - side), y + Math.min(k, side));
  }
  context.stroke();
}

function labelRows(context, grid, colour) {
  context.fillStyle = colour;
  context.globalAlpha = 0.6;
  context.font = "10px ui-monospace, monospace";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(22 / grid.pitch));
  for (let row = 0; row < grid.rows; row += every) {
    context.fillText(String(row * grid.columns), GUTTER - 7, Math.max(5, row * grid.pitch + grid.pitch / 2));
  }
  context.globalAlpha = 1;
}

function paint(canvas, view, width, styles) {
  const grid = layoutFor(view.total, width);
  const scale = window.devicePixelRatio || 1;
  const tall = grid.rows * grid.pitch;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(tall * scale);
  canvas.style.width = width + "px";
  canvas.style.height = tall + "px";
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const text = styles.getPropertyValue("--st-text-color").trim() || "#888";
  const side = grid.pitch - grid.gap;
  const byClass = view.palette.map(() => []);
  for (let block = 0; block < view.total; block++) byClass[view.classes[block]].push(block);
  byClass.forEach((blocks, index) => {
    const { colour, hatched } = view.palette[index];
    context.fillStyle = colour;
    context.strokeStyle = "rgba(255,255,255,.55)";
    context.lineWidth = 1;
    for (const block of blocks) {
      const x = GUTTER + (block % grid.columns) * grid.pitch;
      const y = Math.floor(block / grid.columns) * grid.pitch;
      context.globalAlpha = view.anyLit && !(view.flags[block] & LIT) ? 0.16 : 1;
      context.fillRect(x, y, side, side);
      if (hatched && side >= 4) hatch(context, x, y, side);
    }
  });
  context.globalAlpha = 1;
  if (!view.leaksAreRed) outline(context, view, grid, LEAK, "#dc2626");
  outline(context, view, grid, LIT, text);
  nameOwners(context, view, grid);
  labelRows(context, grid, text);
  return grid;
}

function outline(context, view, grid, bit, colour) {
  context.strokeStyle = colour;
  context.lineWidth = grid.pitch >= 10 ? 2 : 1;
  for (let block = 0; block < view.total; block++) {
    if (!(view.flags[block] & bit)) continue;
    const x = GUTTER + (block % grid.columns) * grid.pitch;
    const y = Math.floor(block / grid.columns) * grid.pitch;
    context.strokeRect(x - 0.5, y - 0.5, grid.pitch - grid.gap + 1, grid.pitch - grid.gap + 1);
  }
}

function textOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#0f172a" : "#ffffff";
}

// Where cells are large enough, each active one names its owner.
function nameOwners(context, view, grid) {
  if (grid.pitch < NAMED_PITCH) return;
  const size = Math.max(11, Math.min(15, Math.round(grid.pitch / 5)));
  context.font = `${size}px ui-monospace, monospace`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let block = 0; block < view.total; block++) {
    if (view.state[block] !== 2 || view.owner[block] <= 0) continue;
    const x = GUTTER + (block % grid.columns) * grid.pitch;
    const y = Math.floor(block / grid.columns) * grid.pitch;
    context.globalAlpha = view.anyLit && !(view.flags[block] & LIT) ? 0.3 : 1;
    context.fillStyle = textOn(view.palette[view.classes[block]].colour);
    const half = (grid.pitch - grid.gap) / 2;
    context.fillText(String(view.owner[block]), x + half, y + half, grid.pitch - grid.gap - 2);
  }
  context.globalAlpha = 1;
}

function ageWords(age) {
  if (!(age >= 0)) return "not known";
  if (age < 1) return Math.round(age * 1000) + " ms";
  if (age < 120) return age.toFixed(1) + " s";
  return age < 7200 ? Math.round(age / 60) + " min" : (age / 3600).toFixed(1) + " h";
}

function describe(view, block) {
  const flags = view.flags[block], count = view.count[block], owner = view.owner[block];
  const state = (STATES[view.state[block]] || "unknown") + (flags & LEAK ? ", leaked" : "");
  const lines = ["State: " + state];
  if (view.state[block] === 2) {
    const others = count > 1 ? " and " + (count - 1) + " more reference" + (count > 2 ? "s" : "") : "";
    lines.push("Owner: " + (flags & OWNER_UNKNOWN ? "unknown" : "sequence " + owner) + others);
    lines.push("Reference count: " + count);
    const tenant = view.tenants[String(view.tenant[block])];
    lines.push("Tenant: " + (flags & OWNER_UNKNOWN ? "unknown" : tenant || "none"));
    const filled = view.filled[block];
    lines.push("Filled: " + (filled < 0 ? "not known" : filled + " of " + view.blockSize + " slots"));
  }
  lines.push("Unchanged for: " + ageWords(view.age[block]));
  return lines;
}

function showTip(tip, canvas, view, grid, block) {
  tip.replaceChildren();
  const title = document.createElement("b");
  title.textContent = "Block " + block;
  tip.append(title);
  for (const line of describe(view, block)) {
    const row = document.createElement("span");
    row.textContent = line;
    tip.append(row);
  }
  tip.hidden = false;
  const x = GUTTER + (block % grid.columns) * grid.pitch;
  const y = Math.floor(block / grid.columns) * grid.pitch;
  const left = x + grid.pitch + 8 + tip.offsetWidth > canvas.clientWidth
    ? Math.max(0, x - tip.offsetWidth - 8) : x + grid.pitch + 8;
  tip.style.left = left + "px";
  tip.style.top = y + grid.pitch + 6 + "px";
}

function blockAt(event, canvas, view, grid) {
  const box = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - GUTTER) / grid.pitch);
  const row = Math.floor((event.clientY - box.top) / grid.pitch);
  const block = row * grid.columns + column;
  return column < 0 || column >= grid.columns || row < 0 || block >= view.total ? -1 : block;
}

function listen(part, canvas, tip) {
  const show = (block) => {
    part.cursor = block;
    if (block < 0) tip.hidden = true;
    else showTip(tip, canvas, part.view, part.grid, block);
  };
  canvas.onpointermove = (event) => show(blockAt(event, canvas, part.view, part.grid));
  canvas.onpointerleave = () => show(-1);
  canvas.onclick = (event) => {
    const block = blockAt(event, canvas, part.view, part.grid);
    if (block >= 0) part.send("picked", block);
  };
  canvas.onkeydown = (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -part.grid.columns, ArrowDown: part.grid.columns };
    if (event.key === "Enter" && part.cursor >= 0) part.send("picked", part.cursor);
    else if (event.key === "Escape") show(-1);
    else if (event.key in steps) {
      const next = Math.max(part.cursor, 0) + steps[event.key];
      show(Math.max(0, Math.min(part.view.total - 1, next)));
    } else return;
    event.preventDefault();
  };
}

const parts = new WeakMap();

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".grid");
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".tip");
  let part = parts.get(root);
  if (!part) {
    part = { cursor: -1 };
    parts.set(root, part);
    listen(part, canvas, tip);
    part.watch = new ResizeObserver(() => {
      if (part.view && root.clientWidth && root.clientWidth !== part.width) part.draw();
    });
    part.watch.observe(root);
  }
  part.view = decode(data);
  part.send = setTriggerValue;
  part.draw = () => {
    part.width = root.clientWidth;
    part.grid = paint(canvas, part.view, part.width, getComputedStyle(root));
    canvas.setAttribute("aria-label", part.view.total + " KV cache blocks, one cell each");
    Object.assign(canvas.dataset, {
      pitch: part.grid.pitch, columns: part.grid.columns, gutter: GUTTER, atNs: part.view.atNs,
      classes: part.view.palette.map((entry) => entry.label).join("|"),
      painted: String(performance.now()),
    });
    if (part.cursor >= 0 && !tip.hidden) showTip(tip, canvas, part.view, part.grid, part.cursor);
  };
  if (root.clientWidth) part.draw();
}
