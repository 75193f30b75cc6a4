// The panel of a task, and that of a box with several tasks. It is read again with each update.
let openName = "", openTasks = null, openTitle = "";

function openTask(name) { openName = name; openTasks = null; fillPanel(); }
function openGroup(title, tasks) { openName = ""; openTasks = tasks; openTitle = title; fillPanel(); }
function closePanel() { openName = ""; openTasks = null; $("panel").hidden = true; }

async function fillPanel() {
  if (openTasks) { showGroup(); return; }
  if (!openName) return;
  const name = openName;
  try {
    const answer = await fetch(address("task", { name }));
    const task = await answer.json();
    if (name === openName) showTask(task);
  } catch (error) { /* the next update asks again */ }
}

function bar(title) {
  const made = element("div"), close = element("button", "close");
  close.onclick = closePanel;
  made.append(element("b", title + " "), close);
  return made;
}

function showGroup() {
  $("panel").hidden = false;
  $("panel").replaceChildren(bar(openTitle), ...openTasks.map((task) => row(task.short + (task.state === "ok" ? "" : " (" + task.state + ")"), () => openTask(task.name))));
}

function showTask(task) {
  const place = $("panel");
  place.hidden = false;
  if (task.problem) { place.replaceChildren(bar(openName), row(task.problem)); return; }
  const trace = element("button", "trace a step");
  trace.id = "trace";
  trace.onclick = () => traceStep(task.task, task.short, trace);
  const head = bar(task.short);
  if (task.state !== "silent") head.append(" ", trace);
  const numbers = [["address", task.address], ["incarnation", task.incarnation], ["process", task.pid + " on " + task.host], ["up for", duration(task.uptime_s)],
    ["CPU time", duration(task.cpu_s)], ["memory", scaled(task.memory_bytes, "B")], ["threads", task.threads],
    ["steps", task.steps + " (" + task.steps_failed + " failed, " + task.steps_in_flight + " in flight)"], ["parts of steps", task.parts + " (" + task.parts_in_flight + " in flight)"]];
  const state = task.state === "ok" ? [] : [element("div", task.state + ": " + task.why, "bad")];
  place.replaceChildren(head, ...state, ...waitsOf(task), table([], task.state === "silent" ? numbers.slice(0, 1) : numbers), ...listsOf(task));
}

function waitsOf(task) {
  const rows = task.waits.map((wait) => row("step " + wait.step_id + " " + wait.words + (wait.node ? " (" + wait.node + ")" : "")));
  return [element("h3", "Waits"), ...(rows.length ? rows : [element("div", "nothing waits", "quiet")])];
}

const shortTask = (name) => name.replace(/^\/job:([^/]*)\/replica:\d+\/task:(\d+).*$/, "$1/$2");

function listsOf(task) {
  const found = [];
  const add = (title, list, heads, cells) => {
    if (!list.length) return;
    const more = task.omitted[title.toLowerCase()];
    found.push(element("h3", title + (more ? " (" + more + " more)" : "")), table(heads, list.map(cells)));
  };
  add("Queues", task.queues, ["name", "elements", "waiting"], (q) => [q.name, q.length + (q.capacity < 0 ? "" : " of " + q.capacity), q.waiting_to_put + " to put, " + q.waiting_to_take + " to take"]);
  add("Accumulators", task.accumulators, ["name", "gradients", "dropped"], (a) => [a.name, a.count + " of " + (a.required || "?"), String(a.dropped)]);
  add("Staleness", task.staleness, ["worker", "updates", "mean", "maximum"], (s) => [shortTask(s.worker), String(s.updates), s.mean.toFixed(2), String(s.maximum)]);
  add("Links", task.links, ["to", "sent", "received", "state"], (l) => [shortTask(l.peer), scaled(l.sent_bytes_s, "B/s"), scaled(l.received_bytes_s, "B/s"), l.state + (l.transport ? ", " + l.transport : "") + (l.why ? ": " + l.why : "")]);
  add("Variables", task.variables, ["name", "bytes", "shape"], (v) => [v.name, v.bytes || v.shape.length ? scaled(v.bytes, "B") : "not initialized", v.dtype + (v.bytes || v.shape.length ? "[" + v.shape.join(",") + "]" : "")]);
  add("Sessions", task.sessions, ["owner", "age", "steps"], (s) => [shortTask(s.owner), duration(s.age_s), s.steps + " (" + s.in_flight + " in flight)"]);
  add("Collectives", task.collectives, ["group", "runs", "sent"], (c) => [c.group + " of " + c.size, String(c.runs), scaled(c.bytes, "B")]);
  add("Scalars", task.scalars, ["tag", "value", "step"], (s) => [s.tag, String(s.value), String(s.step)]);
  return found;
}

// ---- a step of a task, traced by a click

async function traceStep(name, title, button) {
  button.disabled = true;
  button.textContent = "waits for a training step …";
  try {
    const answer = await fetch(address("trace", { name }), { method: "POST" }), found = await answer.json();
    if (found.problem) { button.textContent = found.problem; return; }
    $("timeline-title").textContent = "A step of " + title + ": " + found.about;
    $("timeline-frame").src = address("timeline", { id: found.timeline });
    $("timeline-save").href = address("timeline.json", { id: found.timeline });
    $("timeline").hidden = false;
    button.textContent = "trace a step";
  } catch (error) {
    button.textContent = "no answer: " + error.message;
  } finally { button.disabled = false; }
}
$("timeline-close").onclick = () => { $("timeline").hidden = true; $("timeline-frame").removeAttribute("src"); };
