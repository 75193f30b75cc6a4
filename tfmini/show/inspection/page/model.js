// The tree of nodes that can be drawn (tasks contain name scopes, scopes contain ops), and the edges between them.
// A fold stands for several tasks that are alike. When it is open, its tasks are drawn instead.
const DATA = JSON.parse(document.getElementById("data").textContent);
const MOST_CHILDREN = 32;   // a box with more children is divided, so that every layout is small

// A node: {id, label, parent, children, op (of a leaf), open, count}
const nodes = new Map();

function addNode(id, label, parent, op) {
  const node = { id, label, parent, children: [], op, open: false, count: 0, edges: new Map(), layout: null };
  nodes.set(id, node);
  if (parent) parent.children.push(node);
  return node;
}

const devices = DATA.devices.map((name, i) => addNode("task:" + name, DATA.short[i], null, null));
const ops = DATA.ops.map(([name, type, device, reasons, inputs, controls]) => {
  const op = { name, type: DATA.types[type], device, reasons: reasons.map((i) => DATA.texts[i]), inputs, controls, sends: [], recvs: [] };
  let box = devices[device];
  for (const scope of name.split("/").slice(0, -1)) {
    const id = box.id + "|" + scope;
    box = nodes.get(id) || addNode(id, scope, box, null);
  }
  op.node = addNode("op:" + name, name.split("/").pop(), box, op);
  return op;
});
const byName = new Map(ops.map((op) => [op.name, op]));
DATA.transfers.forEach((t, i) => {
  t.index = i;
  if (byName.has(t.producer)) byName.get(t.producer).sends.push(t);
  for (const user of t.consumers) if (byName.has(user)) byName.get(user).recvs.push(t);
});

const first = (node) => node.label.split(" … ")[0];
const last = (node) => node.label.split(" … ").pop();

function divide(box) {
  for (let round = 0; box.children.length > MOST_CHILDREN; round += 1) {
    const whole = box.children;
    box.children = [];
    const step = Math.ceil(whole.length / Math.ceil(whole.length / MOST_CHILDREN));
    for (let i = 0; i < whole.length; i += step) {
      const part = whole.slice(i, i + step);
      const label = first(part[0]) + " … " + last(part[part.length - 1]);
      const group = addNode(box.id + "|#" + round + "." + i, label, box, null);
      for (const child of part) { child.parent = group; group.children.push(child); }
    }
  }
}
for (const node of [...nodes.values()]) divide(node);
for (const op of ops) for (let box = op.node.parent; box; box = box.parent) box.count += 1;
const FEW_TASKS = DATA.fewTasks;   // of so many the ops are shown at once
const SOME_TASKS = 12;             // of more that have work the heat map is the first view
for (const device of devices) device.open = devices.length <= FEW_TASKS && device.children.length > 0;

const folds = devices.length <= FEW_TASKS ? [] : DATA.folds.filter((fold) => fold.devices.length > 1).map((fold, i) => {
  const node = addNode("fold:" + i, fold.label, null, null);
  node.devices = fold.devices.map((d) => devices[d]);
  for (const device of node.devices) device.fold = node;
  return node;
});
devices.forEach((device, i) => { device.number = i; });
const loads = DATA.loads;
const numbersOf = (node) => (node.devices || [node]).map((device) => device.number);

// The outermost boxes: tasks, and closed folds. Where some of many tasks are open, those that exchange nothing with them
// are left out: they would be in the way of lines.
function roots() {
  const shown = new Set(devices.map((device) => (device.fold && !device.fold.open ? device.fold : device)));
  const open = devices.filter((device) => device.open && shown.has(device)).map((device) => device.number);
  if (devices.length <= FEW_TASKS || !open.length) return [...shown];
  const near = new Set([...open, ...DATA.links.filter(([a, b]) => open.includes(a) || open.includes(b)).flatMap(([a, b]) => [a, b])]);
  return [...shown].filter((root) => numbersOf(root).some((i) => near.has(i)));
}
const isTask = (node) => !node.parent;

function pathOf(node) {
  const path = [];
  for (; node; node = node.parent) path.push(node);
  return path.reverse();
}

// For the layout: which children of a box feed which, whatever is inside them.
for (const op of ops)
  for (const source of op.inputs) {
    const from = pathOf(ops[source].node), to = pathOf(op.node);
    let level = 0;
    while (from[level] === to[level]) level += 1;
    if (level > 0) from[level - 1].edges.set(from[level].id + "\t" + to[level].id, [from[level].id, to[level].id]);
  }

// What stands for a node on the screen: the outermost closed box around it, or itself.
function shownFor(node) {
  let shown = node;
  for (let box = node.parent; box; box = box.parent) if (!box.open) shown = box;
  const root = pathOf(node)[0];
  return root.fold && !root.fold.open ? root.fold : shown;
}

function setOpen(node, open) {
  if (node.op || node.open === open || !(node.children.length || node.devices)) return;
  node.open = open;
  for (let box = node; box; box = box.parent) box.layout = null;
}

function openPath(node) {
  const path = pathOf(node);
  if (path[0].fold) setOpen(path[0].fold, true);
  for (const box of path) if (box !== node) setOpen(box, true);
}

function closeAll() {
  const few = devices.length <= FEW_TASKS;
  for (const node of nodes.values()) if (node.parent || !few) setOpen(node, false);
}

// Opens boxes, outer ones first, as long as the picture stays readable.
function openSome(most) {
  if (devices.length > FEW_TASKS) return;
  let shown = devices.reduce((sum, d) => sum + d.children.length, 0);
  let level = devices.flatMap((d) => d.children);
  while (level.length) {
    for (const box of level) if (!box.op && shown + box.children.length <= most) { setOpen(box, true); shown += box.children.length; }
    level = level.flatMap((box) => (box.open ? box.children : []));
  }
}
