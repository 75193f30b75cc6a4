// Leads the lines between boxes at right angles, so that no line passes behind a box. Lines run in lanes alone: upright
// ones between the columns of an open box, level ones below its columns, and channels between the rows of tasks. The lines
// of one kind from one box share a track of each lane.
const CHANNEL_MARGIN = 14, RISER_WIDTH = 46, LAST_CHANNEL = 46;
const KINDS = { wire: 0.3, control: 0.3, data: 0.5, order: 0.75 };   // where a line meets a box, from its upper edge

// rects: drawn box -> {x, y, w, h}; rows: {top, bottom} of each row of tasks; rowOf: task -> its row.
function linesOf(edges, { rects, rows, rowOf }) {
  const lanes = new Map();
  const left = Math.min(...[...rects.values()].map((rect) => rect.x));

  // What a line uses, the lanes and its two ends: {lanes, from: [x, y], to: [x, y]}; null where it begins or ends in an open box.
  function wayOf(edge) {
    const [source, target] = [edge.data.source, edge.data.target].map((id) => nodes.get(id)), kind = edge.classes.split(" ").pop();
    if ((source.open && source.parent) || (target.open && target.parent)) return null;
    const a = pathOf(source), b = pathOf(target), trunk = source.id + "\t" + kind;
    let level = 0;
    while (a[level] === b[level]) level += 1;
    if (level && (level === a.length || level === b.length)) return null;   // one is around the other
    const shared = level ? a[level - 1] : null;
    const out = ladder(source, shared, 1), into = ladder(target, shared, 0).reverse();
    const between = shared ? [corridor(shared)] : crossing(a[0], b[0]);
    const isShort = shared && out[out.length - 1].key === into[0].key;
    return { trunk, lanes: isShort ? [...out, ...into.slice(1)] : [...out, ...between, ...into], from: end(source, kind, 1, b[0]), to: end(target, kind, 0, a[0]) };
  }

  // The lanes from a node out of its boxes, up to that inside of `shared` or to the edge of its task.
  function ladder(node, shared, side) {
    if (!node.parent) return [port(node, side)];
    const found = [gap(node.parent, columnOf(node) + side)];
    for (let box = node.parent; box !== shared && box.parent; box = box.parent) found.push(corridor(box), gap(box.parent, columnOf(box) + side));
    return found;
  }
  const columnOf = (node) => insideOf(node.parent).columns.findIndex(({ of }) => of.has(node.id));

  function gap(box, i) {
    const { columns } = insideOf(box), { x, w } = rects.get(box.id);
    return { key: box.id + "\t" + i, low: i ? x + columns[i - 1].right : x, high: i < columns.length ? x + columns[i].left : x + w };
  }
  function corridor(box) {
    const { y, h } = rects.get(box.id);
    return { key: box.id + "\tbelow", low: y + h - PAD, high: y + h };
  }
  function port(task, side) {
    const { x, w } = rects.get(task.id), half = x + w / 2;   // lines go out at the right, and in at the left
    return { key: task.id + "\tport" + side, low: side ? half : x, high: side ? x + w : half };
  }

  // Between two tasks: a channel, or two and the left margin. The first row has its lines below it, the others above or
  // on the way to a later row below.
  function crossing(one, other) {
    const [a, b] = [rowOf.get(one.id), rowOf.get(other.id)], first = a < b ? a : Math.max(0, a - 1), second = b < a ? b : Math.max(0, b - 1);
    if (first === second) return [channel(first)];
    return [channel(first), { key: "margin", low: left - CHANNEL_MARGIN - RISER_WIDTH, high: left - CHANNEL_MARGIN }, channel(second)];
  }
  function channel(i) {
    const low = rows[i].bottom + CHANNEL_MARGIN, next = rows[i + 1];
    return { key: "channel " + i, low, high: next ? next.top - CHANNEL_MARGIN : low + LAST_CHANNEL };
  }

  // Where a line meets its box: at the side, or of a task as a whole at the edge of the channel.
  function end(node, kind, side, other) {
    const { x, y, w, h } = rects.get(node.id);
    if (node.parent) return [side ? x + w : x, y + h * KINDS[kind]];
    const [mine, its] = [rowOf.get(node.id), rowOf.get(other.id)], isBelow = mine < its || (mine === its && mine === 0);
    return [null, isBelow ? y + h : y];
  }

  function use(lane, trunk, a, b) {
    if (!lanes.has(lane.key)) lanes.set(lane.key, { ...lane, spans: new Map() });
    const { spans } = lanes.get(lane.key), [low, high] = spans.get(trunk) || [Infinity, -Infinity];
    spans.set(trunk, [Math.min(low, a, b), Math.max(high, a, b)]);
  }
  const middle = (lane) => (lane.low + lane.high) / 2;

  // The corners; `at` gives the place of a lane. Upright lanes have even numbers.
  function corners({ lanes: used, from, to }, at) {
    const points = [[from[0] === null ? at(used[0]) : from[0], from[1]]];
    let [x, y] = points[0];
    used.forEach((lane, i) => {
      if (i % 2) y = at(lane); else x = at(lane);
      points.push([x, y]);
    });
    points.push([x, to[1]], [to[0] === null ? x : to[0], to[1]]);
    return points;
  }

  const ways = edges.map((edge) => [edge, wayOf(edge)]).filter(([, way]) => way);
  for (const [, way] of ways) {
    const points = corners(way, middle);
    way.lanes.forEach((lane, i) => use(lane, way.trunk, points[i + 1][1 - (i % 2)], (points[i + 2] || points[i + 1])[1 - (i % 2)]));
    way.lanes.forEach((lane, i) => { if (i % 2 === 0) use(lane, way.trunk, points[i][1], points[i + 1][1]); });
  }
  for (const lane of lanes.values()) spread(lane);
  const found = new Map();
  for (const [edge, way] of ways) found.set(edge.data.id, simple(corners(way, (lane) => lanes.get(lane.key).tracks.get(way.trunk))));
  return found;
}

// Gives each trunk of a lane a track. Spans on one track do not touch.
function spread(lane) {
  const ends = [], row = new Map();
  for (const [trunk, [low, high]] of [...lane.spans].sort((a, b) => a[1][0] - b[1][0])) {
    let i = ends.findIndex((end) => end + 4 < low);
    if (i < 0) i = ends.length;
    ends[i] = high;
    row.set(trunk, i);
  }
  const pitch = (lane.high - lane.low) / (ends.length + 1);
  lane.tracks = new Map([...row].map(([trunk, i]) => [trunk, lane.low + pitch * (i + 1)]));
}

// Without corners that are none.
function simple(points) {
  const found = [];
  for (const point of points) {
    const same = (k) => found.length > 1 && Math.abs(found[found.length - 1][k] - point[k]) < 0.01 && Math.abs(found[found.length - 2][k] - point[k]) < 0.01;
    while (same(0) || same(1)) found.pop();
    found.push(point);
  }
  return found;
}

// Where a label stands: on the last part of its line that has room, since lines from one box share their first parts. Null:
// nowhere. `placed` has the labels so far, as {x, y, half}.
function placeFor(label, points, placed) {
  const half = 2.6 * label.length + 2;
  for (let i = points.length - 2; i >= 0; i -= 1) {
    const [[a, b], [c, d]] = [points[i], points[i + 1]], x = (a + c) / 2, y = (b + d) / 2;
    if (Math.max(Math.abs(c - a) - 2 * half, Math.abs(d - b) - 14) < 12) continue;
    if (placed.some((other) => Math.abs(other.x - x) < other.half + half && Math.abs(other.y - y) < 11)) continue;
    placed.push({ x, y, half });
    return [i, [x, y]];
  }
  return null;
}

// The line in the words of cytoscape: its ends as seen from the centres of the boxes, and its corners from the line between
// these centres. Cytoscape writes the label at the middle one of the corners, so others are repeated to make it that.
function turnsOf(points, source, target, label) {
  const dx = target.x - source.x, dy = target.y - source.y, long = Math.hypot(dx, dy) || 1;
  const [at, place] = label || [0, [(points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2]];
  const before = points.slice(1, at + 1), after = points.slice(at + 1, -1), most = Math.max(before.length, after.length);
  const filled = (count) => Array(most - count).fill(place);
  const corners = [...before, ...filled(before.length), place, ...filled(after.length), ...after];
  const inner = corners.map(([x, y]) => [x - source.x, y - source.y]);
  const offset = ([x, y], centre) => (x - centre.x) + "px " + (y - centre.y) + "px";
  return {
    weights: inner.map(([x, y]) => (x * dx + y * dy) / long / long), distances: inner.map(([x, y]) => (y * dx - x * dy) / long),
    leaves: offset(points[0], source), enters: offset(points[points.length - 1], target),
  };
}
