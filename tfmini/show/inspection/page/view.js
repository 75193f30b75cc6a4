// All ops, in boxes that open and close. Each drawing changes only the differences from the last one.
function looks() {
  const [ink, paper, soft, data, ring, alarm] = ["ink", "paper", "soft", "data", "ring", "alarm"].map(cssColour);
  return [
    { selector: "node", style: { label: "data(label)", color: ink, "font-size": 9, "line-height": 1.15, "text-wrap": "wrap", shape: "round-rectangle", width: "data(w)", height: "data(h)", "text-valign": "center", "background-color": cssColour("op") } },
    { selector: ".closed", style: { "background-color": cssColour("scope"), "border-width": 1, "border-color": data } },
    { selector: ":parent", style: { "text-valign": "top", "text-margin-y": 12, "background-color": paper, "background-opacity": 0.7, "border-width": 1, "border-color": data, padding: PAD } },
    { selector: ".task", style: { "font-size": 13, "font-weight": "bold", "border-width": 2, "border-color": soft, "background-color": cssColour("frame") } },
    { selector: ".task:parent", style: { "text-margin-y": 19, padding: TASK_PAD } },
    { selector: ".task.closed", style: { "background-color": cssColour("task"), "font-size": 11, "font-weight": "normal", "text-max-width": 600 } },
    { selector: ".fold", style: { "border-style": "double", "border-width": 6 } },
    { selector: ".overloaded", style: { "border-color": alarm, "border-width": 5, "font-weight": "bold" } },
    { selector: "edge", style: { width: 1, "line-color": data, "target-arrow-color": data, "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "bezier" } },
    { selector: "edge[leaves]", style: { "curve-style": "segments", "edge-distances": "node-position", "segment-weights": (edge) => edge.data("weights"), "segment-distances": (edge) => edge.data("distances"), "source-endpoint": "data(leaves)", "target-endpoint": "data(enters)" } },
    { selector: ".order", style: { "line-style": "dotted" } },
    { selector: ".wire", style: { label: "data(label)", "font-size": 8, color: ink, "text-background-color": paper, "text-background-opacity": 1, "text-background-padding": 1, width: "data(width)", "line-color": (edge) => cssColour(edge.data("colour")), "target-arrow-color": (edge) => cssColour(edge.data("colour")), "z-index": 9 } },
    { selector: ".control", style: { "line-style": "dashed", width: 1 } },
    { selector: "node.found", style: { "border-width": 3, "border-color": ring, "background-color": cssColour("found") } },
    { selector: "edge.found", style: { width: 5, "line-color": ring, "target-arrow-color": ring, "font-size": 11, "z-index": 10 } },
  ];
}
const cy = cytoscape({
  container: $("graph"), wheelSensitivity: 0.3, minZoom: 0.02, maxZoom: 4, boxSelectionEnabled: false, autoungrabify: true,
  hideEdgesOnViewport: ops.length > 1500, style: looks(),
});

function drawing(place) {
  const drawn = new Map();
  const visit = (node) => {
    const parent = node.parent ? node.parent.id : undefined;
    const closedTask = isTask(node) && !node.open, { w, h } = sizeOf(node);
    const over = closedTask && numbersOf(node).some((i) => DATA.overloaded[i]);
    const classes = (isTask(node) ? "task " : "") + (node.devices ? "fold " : "") + (over ? "overloaded " : "") + (node.op || node.open ? "" : "closed");
    const label = closedTask ? taskLabel(node) : node.open ? node.label : labelOf(node);
    const data = { id: node.id, label, parent, w, h };
    drawn.set(node.id, { group: "nodes", data, classes, position: place.at.get(node.id) });
    if (node.open) node.children.forEach(visit);
  };
  roots().forEach(visit);
  for (const edge of edges()) drawn.set(edge.data.id, edge);
  return drawn;
}

function edges() {
  const found = new Map(), drawn = new Set(roots());
  const isDrawn = (node) => drawn.has(pathOf(node)[0]) || drawn.has(pathOf(node)[0].fold);
  const join = (from, to, kind) => {
    const source = shownFor(from).id, target = shownFor(to).id;
    if (source === target || !isDrawn(from) || !isDrawn(to)) return null;
    const id = kind + "\t" + source + "\t" + target;
    if (!found.has(id)) found.set(id, { group: "edges", data: { id, source, target, transfers: [], label: "" }, classes: kind });
    return found.get(id);
  };
  for (const op of ops) {
    for (const source of op.inputs) join(ops[source].node, op.node, "data");
    for (const source of op.controls) if (shownFor(op.node).op) join(ops[source].node, op.node, "order");
  }
  for (const t of DATA.transfers) for (const [from, to] of endsOf(t)) {
    if (isClosedTask(from) && isClosedTask(to)) continue;  // the picture of tasks has these
    const edge = join(from, to, t.control ? "wire control" : "wire");
    if (edge && edge.data.transfers[edge.data.transfers.length - 1] !== t.index) edge.data.transfers.push(t.index);
  }
  dress([...found.values()].filter((edge) => edge.classes.startsWith("wire")));
  return found.values();
}

const isClosedTask = (node) => isTask(shownFor(node)) && !shownFor(node).open;

// Labels, widths that say the bytes, and the colours of the senders.
function dress(wires) {
  const total = (edge) => edge.data.transfers.reduce((sum, i) => sum + (DATA.transfers[i].bytes || 0), 0);
  // As in the picture of tasks: beside unknown sizes a few bytes are not drawn as if they were the most.
  const isUnknown = (edge) => edge.data.transfers.some((i) => DATA.transfers[i].bytes === null);
  const most = Math.max(wires.some(isUnknown) ? 1 << 14 : 1, ...wires.map(total));
  for (const edge of wires) {
    edge.data.width = 1 + 4 * Math.max(total(edge) / most, isUnknown(edge) ? 0.3 : 0);
    edge.data.colour = "t" + DATA.colours[DATA.devices.indexOf(DATA.transfers[edge.data.transfers[0]].src)];
    edge.data.label = wireLabel(edge);
  }
}

// Pairs of nodes. A task represents the client's feeds and fetches, and members of a group that run other graphs.
function endsOf(t) {
  const nodeOf = (name, device) => (byName.has(name) ? byName.get(name).node : devices[DATA.devices.indexOf(device)]);
  const users = t.consumers.length ? t.consumers : [""];
  return users.map((user) => [nodeOf(t.producer, t.src), nodeOf(user, t.dst)]);
}

function wireLabel(edge) {
  if (edge.classes !== "wire") return "";
  const rows = edge.data.transfers.map((i) => DATA.transfers[i]), sizes = rows.map((t) => t.bytes);
  return sizes.includes(null) ? "? B" : size(sizes.reduce((a, b) => a + b, 0)) + beyondSum(rows.filter((t) => t.bytes));
}

// What the sum of their bytes leaves out, as in the tables.
function beyondSum(rows) {
  const conditional = rows.some((t) => t.conditional);
  if (rows.some((t) => t.loops))
    return (rows.every((t) => t.loops) ? " an iteration" : " with one iteration") + (conditional ? " at most" : "");
  return conditional ? (rows.length === 1 ? " if taken" : " at most") : "";
}

// The whole picture, but not larger than life.
function fitAll() {
  cy.fit(undefined, 40);
  if (cy.zoom() > 1.4) { cy.zoom(1.4); cy.center(); }
}

// Updates the screen; the node `still` keeps its position on it.
function draw(still) {
  const before = still && !cy.getElementById(still.id).empty() ? { ...cy.getElementById(still.id).renderedPosition() } : null;
  const place = positions(), wanted = drawing(place);
  cy.batch(() => {
    const gone = cy.elements().filter((e) => !wanted.has(e.id()));
    gone.remove();
    const fresh = [];
    for (const [id, element] of wanted) {
      const old = cy.getElementById(id);
      if (old.empty()) { fresh.push(element); continue; }
      old.data(element.data).classes(element.classes);
      if (element.position) old.position(element.position);
    }
    cy.add(fresh);
  });
  lead(place);
  if (before) {
    const after = cy.getElementById(still.id).renderedPosition();
    cy.panBy({ x: before.x - after.x, y: before.y - after.y });
  }
}

function nearestEdge(node, y) {
  const { y1, y2 } = node.boundingBox({ includeLabels: false, includeEdges: false, includeOverlays: false });
  return Math.abs(y1 - y) < Math.abs(y2 - y) ? y1 : y2;
}

// Gives the lines their corners. Of labels that would meet the larger number stays; a click on a line tells the others.
// Cytoscape counts the corners from the centres of the boxes, which it knows only now.
function lead(place) {
  const all = cy.edges().toArray(), total = (edge) => (edge.data("transfers") || []).reduce((sum, i) => sum + (DATA.transfers[i].bytes || 0), 0);
  const routes = linesOf(all.map((edge) => ({ data: edge.data(), classes: edge.classes().filter((kind) => kind in KINDS).join(" ") })), place);
  const placed = [];
  cy.elements().boundingBox();
  cy.batch(() => {
    for (const edge of all.sort((a, b) => total(b) - total(a))) {
      const points = routes.get(edge.id());
      if (!points) { edge.removeData("leaves enters weights distances"); continue; }
      for (const [i, end] of [[0, edge.source()], [points.length - 1, edge.target()]]) if (end.isParent()) points[i][1] = nearestEdge(end, points[i][1]);
      const label = edge.data("label") ? placeFor(edge.data("label"), points, placed) : null;
      edge.data({ ...turnsOf(points, edge.source().position(), edge.target().position(), label), ...(label ? {} : { label: "" }) });
    }
  });
}

function mark(found) {
  cy.batch(() => { cy.elements(".found").removeClass("found"); found.addClass("found"); });
}

// Opens the boxes around these nodes, marks the nodes and scrolls to them.
function reveal(chosen) {
  show("ops");
  chosen.forEach(openPath);
  draw();
  const found = chosen.reduce((all, node) => all.union(cy.getElementById(node.id)), cy.collection());
  mark(found);
  if (found.length) cy.fit(found, 120);
  if (cy.zoom() > 1.6) { cy.zoom(1.6); cy.center(found); }
  return found;
}
