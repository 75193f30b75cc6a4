// Draws the nodes and edges. Each drawing changes only the differences from the last one.
const $ = (id) => document.getElementById(id);
const size = (bytes) => (bytes === null ? "? B" : bytes.toLocaleString("en") + " B");

const cy = cytoscape({
  container: $("graph"), wheelSensitivity: 0.3, minZoom: 0.02, maxZoom: 4, boxSelectionEnabled: false, autoungrabify: true,
  hideEdgesOnViewport: ops.length > 1500,
  style: [
    { selector: "node", style: { label: "data(label)", "font-size": 9, "text-wrap": "wrap", shape: "round-rectangle", width: "data(w)", height: 26, "text-valign": "center", "background-color": "#dcebf7" } },
    { selector: ".closed", style: { "background-color": "#9fc5e8", "border-width": 1, "border-color": "#6b9bc3" } },
    { selector: ":parent", style: { "text-valign": "top", "text-margin-y": 12, "background-color": "#fff", "background-opacity": 0.7, "border-width": 1, "border-color": "#999", padding: 14 } },
    { selector: ".task", style: { "font-size": 13, "font-weight": "bold", "border-width": 2, "border-color": "#555", "background-color": "#eee" } },
    { selector: "edge", style: { width: 1, "line-color": "#bbb", "target-arrow-color": "#bbb", "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "bezier" } },
    { selector: ".order", style: { "line-style": "dotted" } },
    { selector: ".wire", style: { label: "data(label)", "font-size": 8, color: "#a02b1d", "text-background-color": "#fafafa", "text-background-opacity": 0.85, width: 2, "line-color": "#c0392b", "target-arrow-color": "#c0392b", "z-index": 9 } },
    { selector: ".control", style: { "line-style": "dashed", width: 1 } },
    { selector: "node.found", style: { "border-width": 3, "border-color": "#f90", "background-color": "#fe9" } },
    { selector: "node.task.found", style: { "background-color": "#fff4d6" } },
    { selector: "edge.found", style: { width: 5, "line-color": "#f90", "target-arrow-color": "#f90", "font-size": 11, "z-index": 10 } },
  ],
});

function drawing() {
  const drawn = new Map(), place = positions();
  const visit = (node) => {
    const parent = node.parent ? node.parent.id : undefined;
    const classes = (node.parent ? "" : "task ") + (node.op || node.open ? "" : "closed");
    const data = { id: node.id, label: node.open || !node.parent ? node.label : labelOf(node), parent, w: sizeOf(node).w };
    drawn.set(node.id, { group: "nodes", data, classes, position: place.get(node.id) });
    if (node.open) node.children.forEach(visit);
  };
  devices.forEach(visit);
  for (const edge of edges()) drawn.set(edge.data.id, edge);
  return drawn;
}

function edges() {
  const found = new Map();
  const join = (from, to, kind) => {
    const source = shownFor(from).id, target = shownFor(to).id;
    if (source === target) return null;
    const id = kind + "\t" + source + "\t" + target;
    if (!found.has(id)) found.set(id, { group: "edges", data: { id, source, target, transfers: [] }, classes: kind });
    return found.get(id);
  };
  for (const op of ops) {
    for (const source of op.inputs) join(ops[source].node, op.node, "data");
    for (const source of op.controls) if (shownFor(op.node).op) join(ops[source].node, op.node, "order");
  }
  for (const t of DATA.transfers) for (const [from, to] of endsOf(t)) {
    const edge = join(from, to, t.control ? "wire control" : "wire");
    if (edge && !edge.data.transfers.includes(t.index)) edge.data.transfers.push(t.index);
  }
  for (const edge of found.values()) edge.data.label = wireLabel(edge);
  return found.values();
}

// Pairs of nodes. A task represents the client's feeds and fetches, and members of a group that run other graphs.
function endsOf(t) {
  const nodeOf = (name, device) => (byName.has(name) ? byName.get(name).node : devices[DATA.devices.indexOf(device)]);
  const users = t.consumers.length ? t.consumers : [""];
  return users.map((user) => [nodeOf(t.producer, t.src), nodeOf(user, t.dst)]);
}

function wireLabel(edge) {
  if (edge.classes !== "wire") return "";
  const sizes = edge.data.transfers.map((i) => DATA.transfers[i].bytes);
  return size(sizes.includes(null) ? null : sizes.reduce((a, b) => a + b, 0));
}

// Updates the screen; the node `still` keeps its position on it.
function draw(still) {
  const before = still && !cy.getElementById(still.id).empty() ? { ...cy.getElementById(still.id).renderedPosition() } : null;
  const wanted = drawing();
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
  if (before) {
    const after = cy.getElementById(still.id).renderedPosition();
    cy.panBy({ x: before.x - after.x, y: before.y - after.y });
  }
}

function mark(found) {
  cy.batch(() => { cy.elements(".found").removeClass("found"); found.addClass("found"); });
}

// Opens the boxes around these nodes, marks the nodes and scrolls to them.
function reveal(chosen) {
  chosen.forEach(openPath);
  draw();
  const found = chosen.reduce((all, node) => all.union(cy.getElementById(node.id)), cy.collection());
  mark(found);
  if (found.length) cy.fit(found, 120);
  if (cy.zoom() > 1.6) { cy.zoom(1.6); cy.center(found); }
  return found;
}
