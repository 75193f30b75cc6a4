// The picture of tasks, as `tfmini inspect --svg` draws it: of few tasks with their ops, of more as closed boxes.
let isUnfolded = false;   // whether equal tasks have boxes of their own
let zoom = 0;             // 0: as large as its place, but readable
const LEAST_ZOOM = 0.62;
const isOfOps = DATA.isOfOps;

function drawTasks() {
  const place = $("picture");
  showPicture(place, isUnfolded ? DATA.unfolded : DATA.picture);
  const svg = place.firstElementChild, box = svg.viewBox.baseVal;
  const fits = Math.min((place.clientWidth - 12) / box.width, (place.clientHeight - 12) / box.height, 1.4);
  const wide = (place.clientWidth - 12) / box.width;  // rather a little smaller than cut
  const scale = zoom || Math.max(fits, wide > 0.45 ? Math.min(LEAST_ZOOM, wide) : box.width > 2200 ? 0.45 : LEAST_ZOOM);
  svg.setAttribute("width", box.width * scale);
  svg.setAttribute("height", box.height * scale);
}

// What the boxes of the picture stand for: the numbers of tasks, and inside of a task its ops.
function tasksOf(id) {
  const name = id.split("|")[0], one = DATA.devices.indexOf(name), fold = DATA.folds.find((each) => each.label === name);
  return one >= 0 ? [one] : fold ? fold.devices : [DATA.short.indexOf(name)];
}
function opsOf(id) {
  const scope = id.slice(id.indexOf("|") + 1), [task] = tasksOf(id);
  return ops.filter((op) => op.device === task && (op.name === scope || op.name.startsWith(scope + "/")));
}
const namesAt = new Map();   // box -> the names of its ops
function hasOp(id, name) {
  if (!namesAt.has(id)) namesAt.set(id, new Set(opsOf(id).map((op) => op.name)));
  return namesAt.get(id).has(name);
}
const isInside = (id) => id.includes("|") && !id.endsWith("|");

function showPlace(id) {
  if (!isInside(id)) { showGroup({ label: id.startsWith("/") ? shortName(id.split("|")[0]) : id, devices: tasksOf(id) }); return; }
  const inside = opsOf(id), open = line("show it among all ops", () => showOp(inside[0]));
  if (inside.length === 1) { tellOp(inside[0], [open]); return; }
  const scope = line(id.slice(id.indexOf("|") + 1), null, "h2");
  details(scope, inside.length + " ops on " + shortName(id.split("|")[0]), ...inside.slice(0, 60).map((op) => line(op.name + "  " + op.type, () => showOp(op))),
    ...(inside.length > 60 ? ["… " + (inside.length - 60) + " more"] : []));
}

function openPlace(id) {
  if (isInside(id)) { showOp(opsOf(id)[0]); return; }
  const found = tasksOf(id);
  if (found.length > 1 && DATA.unfolded) { isUnfolded = true; drawTasks(); } else openTask(devices[found[0]]);
}

// Whether a transfer runs along a line of the picture.
function runsOn(t, wire) {
  const { from, to } = wire.dataset;
  const isAt = (id, device, names) => tasksOf(id).includes(DATA.devices.indexOf(device)) && (!isInside(id) || names.some((name) => hasOp(id, name)));
  return isAt(from, t.src, [t.producer]) && isAt(to, t.dst, t.consumers.length ? t.consumers : [""]);
}

function showLine(wire) {
  markElements([wire]);
  if (isOfOps) { details(...DATA.transfers.filter((t) => runsOn(t, wire)).flatMap((t) => line(t.tensor + ": " + what(t), () => follow([t])))); return; }
  const from = tasksOf(wire.dataset.from), to = tasksOf(wire.dataset.to);
  const found = linksOf((src, dst) => from.includes(src) && to.includes(dst));
  const total = found.reduce((sum, link) => sum + link[2], 0), beyond = found.map((link) => link[3]).find((text) => text) || "";
  details(
    line(wire.dataset.from + " → " + wire.dataset.to + ": " + size(total) + beyond, null, "h2"),
    ...found.slice(0, 40).map(linkRow), ...(found.length > 40 ? ["… " + (found.length - 40) + " more"] : []),
  );
}

function markElements(chosen) {
  for (const old of $("picture").querySelectorAll(".found")) old.classList.remove("found");
  for (const element of chosen) element.classList.add("found");
}

// Marks the lines of a message, or its tasks.
function markPicture(message, transfers) {
  if ($("main").className !== "tasks") return;
  const all = [...$("picture").querySelectorAll("[data-from]")].filter((wire) => transfers.some((t) => runsOn(t, wire)));
  const ends = [message.from, message.to].map((name) => DATA.short.indexOf(name)).filter((i) => i >= 0);
  const boxes = [...$("picture").querySelectorAll("[data-id]")].filter((box) => !isInside(box.dataset.id) && tasksOf(box.dataset.id).some((i) => ends.includes(i)));
  markElements(all.length ? all : boxes);
}

$("picture").addEventListener("click", (event) => {
  const box = event.target.closest("[data-id]"), wire = event.target.closest("[data-from]");
  if (box) { markElements([box]); if (event.detail === 2) openPlace(box.dataset.id); else showPlace(box.dataset.id); }
  else if (wire) showLine(wire);
});
$("picture").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const svg = $("picture").firstElementChild;
  zoom = Math.max(0.1, Math.min(4, (svg.clientWidth / svg.viewBox.baseVal.width) * Math.exp(-event.deltaY / 400)));
  drawTasks();
}, { passive: false });
let held = null;   // dragging moves the picture
$("picture").addEventListener("mousedown", (event) => { held = { x: event.clientX + $("picture").scrollLeft, y: event.clientY + $("picture").scrollTop }; });
window.addEventListener("mousemove", (event) => { if (held && event.buttons) $("picture").scrollTo(held.x - event.clientX, held.y - event.clientY); });
window.addEventListener("mouseup", () => { held = null; });

$("save").onclick = async () => {
  const view = $("main").className;
  const blob = view === "ops" ? await cy.png({ full: true, scale: 2, bg: cssColour("paper"), output: "blob-promise" }) : await pngOf($(view === "heat" ? "heat" : "picture").firstElementChild);
  saveBlob(blob, "tfmini-inspect.png");
};
