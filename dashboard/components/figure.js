// Keeps one Plotly chart per element; new data is merged into it, so zoom and hover survive.
const CONFIG = { displayModeBar: false, displaylogo: false, scrollZoom: false, doubleClick: false };

function loadPlotly(path) {
  window.kvpulsePlotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(path, document.baseURI).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      window.kvpulsePlotly = undefined;
      reject(new Error("not loaded: " + script.src));
    };
    document.head.append(script);
  });
  return window.kvpulsePlotly;
}

function themed(layout, styles) {
  const read = (name, otherwise) => styles.getPropertyValue(name).trim() || otherwise;
  const text = read("--st-text-color", "#64748b"), ground = read("--st-background-color", "#ffffff");
  const line = read("--st-border-color", "#dbe1ea");
  const axis = { gridcolor: line, linecolor: line, tickcolor: line, tickfont: { color: text } };
  return {
    ...layout,
    autosize: true,
    template: undefined,
    font: { family: read("--st-font", "sans-serif"), size: 12, color: text, ...layout.font },
    hoverlabel: { bgcolor: ground, bordercolor: line, font: { color: text }, ...layout.hoverlabel },
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

// The library keeps a reader's zoom only while the figure's own range stays; ours moves with time.
function keepZoom(part, layout) {
  if (layout.uirevision !== part.revision) part.zoom = {};
  part.revision = layout.uirevision;
  for (const [axis, range] of Object.entries(part.zoom)) {
    layout[axis] = { ...layout[axis], range, autorange: false };
  }
}

function listen(root, part) {
  root.on("plotly_relayout", (change) => {
    for (const axis of ["xaxis", "yaxis"]) {
      const range = [change[axis + ".range[0]"], change[axis + ".range[1]"]];
      if (range[0] !== undefined) part.zoom[axis] = range;
    }
  });
  root.on("plotly_doubleclick", () => {
    part.zoom = {};
    drawLatest(root, part);
  });
}

const parts = new WeakMap();

async function draw(root, part) {
  const Plotly = await loadPlotly(part.data.library);
  if (!root.isConnected || !root.clientWidth) return;
  const { data, layout } = JSON.parse(part.data.figure);
  keepZoom(part, layout);
  part.width = root.clientWidth;
  await Plotly.react(root, data, themed({ ...layout, width: part.width }, getComputedStyle(root)), CONFIG);
  if (!root.dataset.painted) listen(root, part);
  root.dataset.painted = String(performance.now());
}

// One drawing at a time; what arrives meanwhile is drawn once, after it.
async function drawLatest(root, part) {
  part.stale = true;
  if (part.busy) return;
  part.busy = true;
  try {
    while (part.stale) {
      part.stale = false;
      await draw(root, part);
    }
  } catch (error) {
    if (!root.dataset.painted) root.dataset.failed = "yes";
    console.error(error);
  } finally {
    part.busy = false;
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".kv-plot");
  let part = parts.get(root);
  if (!part) {
    part = { busy: false, stale: false, width: 0, zoom: {} };
    parts.set(root, part);
    part.watch = new ResizeObserver(() => {
      if (root.clientWidth && root.clientWidth !== part.width) drawLatest(root, part);
    });
    part.watch.observe(root);
  }
  part.data = component.data;
  root.style.height = component.data.height + "px";
  drawLatest(root, part);
}
