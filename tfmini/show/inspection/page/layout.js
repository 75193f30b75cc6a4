// Computes positions. Each open box has its own cached layout, so that opening or closing a box recomputes only
// the layouts of the boxes around it.
const PAD = 20, HEAD = 16, HEIGHT = 26, JOB_GAP = 36;
const TASK_PAD = 28;   // of the frame around an open task, from its children
const TASK_GAP = 40, ROW_GAP = 64;

function labelOf(node) {
  const text = node.label.length > 26 ? node.label.slice(0, 25) + "…" : node.label;
  return node.op ? text + (text === node.op.type ? "" : "\n" + node.op.type) : text + " (" + node.count + ")";
}

// A closed task or fold: its name, what it runs and what it sends and receives.
function taskLabel(node) {
  const all = numbersOf(node).map((i) => loads[i]);
  const range = (key) => {
    const values = all.map((load) => load[key]), low = human(Math.min(...values)), high = human(Math.max(...values));
    return low === high ? high : low + " to " + high;
  };
  const factors = numbersOf(node).map((i) => DATA.overloaded[i] || 0);
  const lines = [node.label + (Math.max(...factors) ? "  overloaded ×" + Math.max(...factors).toFixed(1) : "")];
  if (all.every((load) => load.idle)) return [...lines, "no part in this step"].join("\n");
  const ops = Math.max(...all.map((load) => load.ops)), holds = all.some((load) => load.state) ? ", holds " + range("state") : "";
  lines.push((ops ? ops.toLocaleString("en") + " ops" : "runs another client's graph") + holds);
  return [...lines, "sends " + range("sends") + all[0].sendsMore + ", receives " + range("receives") + all[0].receivesMore + (all.length > 1 ? " each" : "")].join("\n");
}

function sizeOf(node) {
  if (isTask(node) && !node.open) {
    const lines = taskLabel(node).split("\n");
    return { w: 6.4 * Math.max(...lines.map((text) => text.length)) + 20, h: 16 * lines.length + 14 };
  }
  if (node.open) return insideOf(node);
  const longest = Math.max(...labelOf(node).split("\n").map((line) => line.length));
  return { w: Math.max(44, 5.2 * longest + 12), h: HEIGHT };
}

// {w, h, at, columns}: the size of an open box, its children's centres from its upper left corner, and its columns of
// children, from left to right, with the room between them.
function insideOf(box) {
  if (box.layout) return box.layout;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 30 + 4 * Math.min(20, box.edges.size), ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const child of box.children) {
    const { w, h } = sizeOf(child);
    graph.setNode(child.id, { width: w, height: h });
  }
  for (const [from, to] of box.edges.values()) graph.setEdge(from, to);
  dagre.layout(graph);
  const at = new Map(box.children.map((child) => [child.id, graph.node(child.id)]));
  const { width, height } = graph.graph();
  box.layout = { w: width + 2 * PAD, h: height + 2 * PAD + HEAD, at, columns: columnsOf(at) };
  return box.layout;
}

function columnsOf(at) {
  const found = [];
  for (const [id, { x, width }] of [...at].sort((a, b) => a[1].x - b[1].x)) {
    const last = found[found.length - 1], low = PAD + x - width / 2, high = PAD + x + width / 2;
    if (!last || low > last.right) found.push({ left: low, right: high, of: new Set([id]) });
    else { last.left = Math.min(last.left, low); last.right = Math.max(last.right, high); last.of.add(id); }
  }
  return found;
}

// {at, rects, rows, rowOf}: the centres of all drawn nodes except open boxes. Jobs are below each other, ps first; the tasks of a job are side
// by side, in as many rows as make the picture about square.
function positions() {
  const jobs = new Map();
  for (const root of roots()) {
    const job = DATA.short[numbersOf(root)[0]].split("/")[0];
    jobs.set(job, [...(jobs.get(job) || []), root]);
  }
  const area = roots().map(sizeOf).reduce((sum, size) => sum + (size.w + TASK_GAP) * (size.h + TASK_GAP), 0);
  const widest = 1.5 * Math.sqrt(area);
  const found = { at: new Map(), rects: new Map(), rows: [], rowOf: new Map() };
  let top = 0;
  for (const job of [...jobs.keys()].sort((a, b) => (b === "ps") - (a === "ps"))) {
    for (const row of rowsOf(jobs.get(job), widest)) {
      const sizes = row.map(sizeOf);
      let left = -(sizes.reduce((sum, size) => sum + size.w + TASK_GAP, -TASK_GAP)) / 2;
      row.forEach((device, i) => {
        place(device, left, top, sizes[i], found);
        found.rowOf.set(device.id, found.rows.length);
        left += sizes[i].w + TASK_GAP;
      });
      found.rows.push({ top, bottom: top + Math.max(...sizes.map((size) => size.h)) });
      top = found.rows[found.rows.length - 1].bottom + ROW_GAP;
    }
    top += JOB_GAP;
  }
  return found;
}

function rowsOf(tasks, widest) {
  const rows = [[]];
  let width = 0;
  for (const task of tasks) {
    const { w } = sizeOf(task);
    if (width > 0 && width + w > widest) { rows.push([]); width = 0; }
    rows[rows.length - 1].push(task);
    width += w + TASK_GAP;
  }
  return rows;
}

function place(node, left, top, size, found) {
  found.rects.set(node.id, { x: left, y: top, w: size.w, h: size.h });
  if (!node.open) { found.at.set(node.id, { x: left + size.w / 2, y: top + size.h / 2 }); return; }
  const { at } = insideOf(node);
  for (const child of node.children) {
    const inner = sizeOf(child), centre = at.get(child.id);
    place(child, left + PAD + centre.x - inner.w / 2, top + PAD + HEAD + centre.y - inner.h / 2, inner, found);
  }
}
