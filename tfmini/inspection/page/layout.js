// Where everything stands. Each open box is laid out by itself and remembered, so that opening or closing one
// box costs only the small layouts of the boxes around it.
const PAD = 14, HEAD = 16, HEIGHT = 26, COLUMN_GAP = 170, ROW_GAP = 30;

function labelOf(node) {
  const text = node.label.length > 26 ? node.label.slice(0, 25) + "…" : node.label;
  return node.op ? text + (text === node.op.type ? "" : "\n" + node.op.type) : text + " (" + node.count + ")";
}

function sizeOf(node) {
  if (node.open) return insideOf(node);
  const longest = Math.max(...labelOf(node).split("\n").map((line) => line.length));
  return { w: Math.max(44, 5.2 * longest + 12), h: HEIGHT };
}

// {w, h, at}: the size of an open box, and its children's centres from its upper left corner.
function insideOf(box) {
  if (box.layout) return box.layout;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 10, ranksep: 34, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const child of box.children) {
    const { w, h } = sizeOf(child);
    graph.setNode(child.id, { width: w, height: h });
  }
  for (const [from, to] of box.edges.values()) graph.setEdge(from, to);
  dagre.layout(graph);
  const at = new Map(box.children.map((child) => [child.id, graph.node(child.id)]));
  const { width, height } = graph.graph();
  box.layout = { w: width + 2 * PAD, h: height + 2 * PAD + HEAD, at };
  return box.layout;
}

// Centres of all that is drawn and is not an open box. Jobs are columns, parameter servers first.
function positions() {
  const found = new Map();
  const jobs = new Map();
  devices.forEach((device, i) => {
    const job = DATA.short[i].split("/")[0];
    jobs.set(job, [...(jobs.get(job) || []), device]);
  });
  const columns = [...jobs.keys()].sort((a, b) => (b === "ps") - (a === "ps")).map((job) => jobs.get(job));
  let left = 0;
  for (const column of columns) {
    const sizes = column.map(sizeOf);
    const width = Math.max(...sizes.map((size) => size.w));
    let top = -(sizes.reduce((sum, size) => sum + size.h + ROW_GAP, -ROW_GAP)) / 2;
    column.forEach((device, i) => {
      place(device, left + (width - sizes[i].w) / 2, top, sizes[i], found);
      top += sizes[i].h + ROW_GAP;
    });
    left += width + COLUMN_GAP;
  }
  return found;
}

function place(node, left, top, size, found) {
  if (!node.open) { found.set(node.id, { x: left + size.w / 2, y: top + size.h / 2 }); return; }
  const { at } = insideOf(node);
  for (const child of node.children) {
    const inner = sizeOf(child), centre = at.get(child.id);
    place(child, left + PAD + centre.x - inner.w / 2, top + PAD + HEAD + centre.y - inner.h / 2, inner, found);
  }
}
