// Draws the nodes and edges. Each drawing changes only the differences from the last one.
const cy = cytoscape({
  container: $("graph"), wheelSensitivity: 0.3, minZoom: 0.02, maxZoom: 4, boxSelectionEnabled: false, autoungrabify: true,
  hideEdgesOnViewport: ops.length > 1500,
  style: [
    { selector: "node", style: { label: "data(label)", "font-size": 9, "line-height": 1.15, "text-wrap": "wrap", shape: "round-rectangle", width: "data(w)", height: "data(h)", "text-valign": "center", "background-color": "#dcebf7" } },
    { selector: ".closed", style: { "background-color": "#9fc5e8", "border-width": 1, "border-color": "#6b9bc3" } },
    { selector: ":parent", style: { "text-valign": "top", "text-margin-y": 12, "background-color": "#fff", "background-opacity": 0.7, "border-width": 1, "border-color": "#999", padding: 14 } },
    { selector: ".task", style: { "font-size": 13, "font-weight": "bold", "border-width": 2, "border-color": "#555", "background-color": "#eee" } },
    { selector: ".task:parent", style: { "text-margin-y": 19, padding: 24 } },
    { selector: ".task.closed", style: { "background-color": "data(colour)", color: "data(ink)", "font-size": 11, "font-weight": "normal", "text-max-width": 600 } },
    { selector: ".fold", style: { "border-style": "double", "border-width": 6 } },
    { selector: ".overloaded", style: { "border-color": "#c00", "border-width": 5, "font-weight": "bold" } },
    { selector: "edge", style: { width: 1, "line-color": "#bbb", "target-arrow-color": "#bbb", "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "bezier" } },
    { selector: ".order", style: { "line-style": "dotted" } },
    { selector: ".wire", style: { label: "data(label)", "font-size": 8, color: "#a02b1d", "text-background-color": "#fafafa", "text-background-opacity": 1, "text-background-padding": 1, width: "data(width)", "line-color": "#c0392b", "target-arrow-color": "#c0392b", "z-index": 9 } },
    { selector: ".link", style: { "target-arrow-shape": "none", "line-color": "data(colour)", "line-opacity": "data(opacity)", "font-size": 11, "curve-style": "bezier" } },
    { selector: "edge:loop", style: { "loop-direction": "90deg", "loop-sweep": "30deg", "control-point-step-size": "data(reach)" } },
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
    const closedTask = isTask(node) && !node.open, { w, h } = sizeOf(node);
    const over = closedTask && numbersOf(node).some((i) => DATA.overloaded[i]);
    const classes = (isTask(node) ? "task " : "") + (node.devices ? "fold " : "") + (over ? "overloaded " : "") + (node.op || node.open ? "" : "closed");
    const label = closedTask ? taskLabel(node) : node.open ? node.label : labelOf(node);
    const shade = closedTask ? ((over ? 0.75 : 0.4) * traffic(node)) / MOST_TRAFFIC : 0;  // equal tasks are no alarm
    const data = { id: node.id, label, parent, w, h, colour: closedTask ? colour(shade) : "", ink: inkOn(shade) };
    drawn.set(node.id, { group: "nodes", data, classes, position: place.get(node.id) });
    if (node.open) node.children.forEach(visit);
  };
  roots().forEach(visit);
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
    const between = isLink(from, to);
    const edge = between ? link(found, from, to) : join(from, to, t.control ? "wire control" : "wire");
    if (between) addPair(edge, from, to, t);
    if (edge && edge.data.transfers[edge.data.transfers.length - 1] !== t.index) edge.data.transfers.push(t.index);
  }
  dress([...found.values()]);
  return found.values();
}

// Between closed tasks there is one line for both directions and for all transfers, also inside a fold.
const isLink = (from, to) => isTask(shownFor(from)) && isTask(shownFor(to)) && !shownFor(from).open && !shownFor(to).open;

function link(found, from, to) {
  const [source, target] = [shownFor(from).id, shownFor(to).id].sort();
  const id = "link\t" + source + "\t" + target;
  if (!found.has(id)) found.set(id, { group: "edges", data: { id, source, target, transfers: [], isLink: 1, reach: sizeOf(shownFor(from)).w }, classes: "wire link", pairs: new Map() });
  return found.get(id);
}

// A line between folds stands for the links of several pairs of tasks.
function addPair(edge, from, to, t) {
  if (edge.data.transfers.includes(t.index)) return;
  const key = [from, to].map((node) => pathOf(node)[0].number).sort().join();
  edge.pairs.set(key, (edge.pairs.get(key) || 0) + (t.bytes || 0));
}

function pairsLabel(edge) {
  const sizes = [...edge.pairs.values()].filter((bytes) => bytes), most = Math.max(0, ...sizes), least = Math.min(...sizes);
  if (!sizes.length) return "order only";
  if (sizes.length < 2) return human(most);
  return (least > 0.9 * most ? "" : "up to ") + human(most) + " × " + sizes.length;
}

// Labels, and widths that say the bytes: of a line for several pairs of tasks, those of its busiest pair. Of many links
// only the larger ones have labels.
function dress(all) {
  const wires = all.filter((edge) => edge.classes.startsWith("wire"));
  const total = (edge) => edge.data.transfers.reduce((sum, i) => sum + (DATA.transfers[i].bytes || 0), 0);
  for (const edge of wires) edge.bytes = edge.pairs ? Math.max(...edge.pairs.values()) : total(edge);
  const most = Math.max(1, ...wires.map((edge) => edge.bytes));
  const ranked = wires.filter((edge) => edge.classes === "wire link").sort((a, b) => b.bytes - a.bytes).slice(0, 12);
  for (const edge of all) edge.data.label = "";
  for (const edge of wires) {
    const share = edge.bytes / most, isLink = edge.classes === "wire link";
    edge.data.width = 1 + (isLink ? 17 : 6) * share;
    edge.data.colour = colour(0.25 + 0.6 * share);
    edge.data.opacity = 0.35 + 0.55 * share;
    if (!isLink) edge.data.label = wireLabel(edge);
  }
  for (const edge of ranked) edge.data.label = pairsLabel(edge);
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

// The whole picture, but not larger than life.
function fitAll() {
  cy.fit(undefined, 40);
  if (cy.zoom() > 1.4) { cy.zoom(1.4); cy.center(); }
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
  show("tasks");
  chosen.forEach(openPath);
  draw();
  const found = chosen.reduce((all, node) => all.union(cy.getElementById(node.id)), cy.collection());
  mark(found);
  if (found.length) cy.fit(found, 120);
  if (cy.zoom() > 1.6) { cy.zoom(1.6); cy.center(found); }
  return found;
}
