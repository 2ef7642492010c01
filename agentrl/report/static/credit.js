"use strict";
// The credit page. Every text of the data goes into the page by textContent: it comes from models and environments.
const SVG = "http://www.w3.org/2000/svg";
const CELL = 46, ROW = 36, LEFT = 116, FOLD = 80;
let data, steps, method, group, selected, filter, shownAs;
// what a page that shows more than one set of steps adds: to the address, and to the panel of a step
let address = () => ({});
const stepExtras = [];

function node(parent, tag, attributes, text) {
  const svg = parent.namespaceURI === SVG || tag === "svg";
  const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const name in attributes || {}) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const byId = (id) => document.getElementById(id);
const clear = (id) => { const element = byId(id); element.replaceChildren(); return element; };
const short = (text, n) => { const one = text.replace(/\s+/g, " ").trim(); return one.length > n ? one.slice(0, n - 1) + "…" : one; };
const signed = (x, digits = 2) => x === null || x === undefined ? "none" : (x > 0 ? "+" : "") + x.toFixed(digits);
const plain = (x) => x === null || x === undefined ? "none" : String(Number(x.toPrecision(4)));
const chosen = () => data.methods[method];
const described = (options) => Object.entries(options).map(([k, v]) => k + "=" + (typeof v === "string" ? v : JSON.stringify(v))).join(", ");

// what a cell shows: a name, one number a step
function measures() {
  const found = [["advantage", chosen().advantage]];
  for (const name in chosen().parts) found.push([name, chosen().parts[name]]);
  found.push(["reward", steps.reward]);
  if (steps.tokens.some((t) => t.length)) {
    found.push(["log-prob of the answer", steps.tokens.map((t) => t.length ? t.reduce((sum, x) => sum + x[1], 0) : null)]);
  }
  for (const name in steps.values) found.push([name, steps.values[name]]);
  return found;
}

function measure() {
  const found = measures();
  return found.find(([name]) => name === shownAs) || found[0];
}

// one scale for all cells of the group, symmetric about 0
function scaleOf(values, rows) {
  const sizes = rows.map((i) => values[i]).filter((x) => x !== null).map(Math.abs);
  return sizes.reduce((a, b) => Math.max(a, b), 0) || 1;
}

function rowsOf(groupNumber) {
  return data.groups[groupNumber].episodes.flatMap((e) => data.episodes[e].steps);
}

function paint(parent, value, scale, box) {
  node(parent, "rect", { ...box, rx: 4, fill: "var(--card)" });
  if (value === null || value === undefined) {
    node(parent, "line", { class: "hatch", x1: box.x, y1: box.y + box.height, x2: box.x + box.width, y2: box.y });
    return;
  }
  const share = Math.min(1, Math.abs(value) / scale);
  node(parent, "rect", { ...box, rx: 4, fill: value >= 0 ? "var(--pos)" : "var(--neg)", "fill-opacity": (0.06 + 0.94 * share).toFixed(3) });
}

const strong = (value, scale) => value !== null && value !== undefined && Math.abs(value) / scale > 0.45;

function drawTabs() {
  const tabs = clear("methods");
  data.methods.forEach((m, i) => {
    const button = node(tabs, "button", { "data-method": m.name, "aria-pressed": i === method, title: described(m.options) }, m.name);
    button.className = i === method ? "on" : "";
    button.onclick = () => { method = i; draw(); };
  });
  const select = clear("measure");
  for (const [name] of measures()) node(select, "option", { value: name }, name);
  select.value = measure()[0];
  const groups = clear("groups");
  data.groups.forEach((g, i) => {
    const won = g.episodes.filter((e) => data.episodes[e].succeeded).length;
    node(groups, "option", { value: i }, `${short(g.name, 70)} (${won} of ${g.episodes.length} succeeded)`);
  });
  groups.value = group;
  const endings = [...new Set(data.groups[group].episodes.map((e) => data.episodes[e].ending || "no ending stored"))];
  const list = clear("filter");
  for (const name of ["all episodes", "succeeded", "not succeeded", ...endings]) node(list, "option", { value: name }, name);
  if (![...list.options].some((o) => o.value === filter)) filter = "all episodes";
  list.value = filter;
}

// the group in which the first method tells the steps apart most
function widest() {
  const spreads = data.groups.map((_, g) => {
    const given = rowsOf(g).map((i) => data.methods[0].advantage[i]).filter((a) => a !== null);
    return given.length ? given.reduce((a, b) => Math.max(a, b)) - given.reduce((a, b) => Math.min(a, b)) : 0;
  });
  return Math.max(0, spreads.indexOf(Math.max(...spreads)));
}

function visibleEpisodes() {
  return data.groups[group].episodes.filter((e) => {
    const episode = data.episodes[e];
    if (filter === "all episodes") return true;
    if (filter === "succeeded") return episode.succeeded;
    if (filter === "not succeeded") return !episode.succeeded;
    return (episode.ending || "no ending stored") === filter;
  });
}

function drawTimeline() {
  const [shown, values] = measure();
  const rows = rowsOf(group), scale = scaleOf(values, rows), episodes = visibleEpisodes();
  const widest = Math.max(1, ...rows.map((i) => steps.column[i] + 1));
  const svg = clear("timeline");
  svg.setAttribute("width", LEFT + widest * CELL + 130);
  svg.setAttribute("height", 8 + episodes.length * ROW);
  const place = {};
  episodes.forEach((e, line) => data.episodes[e].steps.forEach((i) => { place[i] = [LEFT + steps.column[i] * CELL, 4 + line * ROW]; }));
  episodes.forEach((e, line) => {
    const episode = data.episodes[e], y = 4 + line * ROW, first = episode.steps[0];
    const name = episode.name.startsWith(data.groups[group].name) ? episode.name.slice(data.groups[group].name.length) || episode.name : episode.name;
    const label = episode.lane || episode.agent && data.episodes.some((x) => x.agent !== episode.agent) ? `${episode.agent}: ${name}` : name;
    node(svg, "text", { x: 4 + 10 * episode.lane, y: y + 20 }, short(label, 17 - 2 * episode.lane)).append(titled(episode.name));
    const from = first === undefined ? -1 : steps.parent[first] >= 0 ? steps.parent[first] : steps.caller[first];
    if (from >= 0 && place[from]) {
      const [x, above] = place[from], [to, below] = place[first];
      node(svg, "path", { class: "link", d: `M${x + CELL / 2 - 2} ${above + 28} V${below + 14} H${to}` });
    }
    for (const i of episode.steps) drawCell(svg, i, place[i], values[i], scale);
    const last = episode.steps[episode.steps.length - 1];
    const end = (episode.failed ? "lost: " : episode.succeeded ? "✓ " : "✗ ") + (episode.ending || "") + (episode.score === null ? "" : ` ${plain(episode.score)}`);
    if (last !== undefined) node(svg, "text", { class: "soft", x: place[last][0] + CELL + 4, y: y + 20 }, end);
  });
  byId("legend").textContent = `Colour: ${shown}, from ${signed(-scale)} (orange) over 0 to ${signed(scale)} (blue), one scale for the group. ` +
    "Dashed: an invalid answer or a candidate; dotted: a probe; a line across: no credit was given, which is not 0. A dot: a reward.";
}

function titled(text) {
  const title = document.createElementNS(SVG, "title");
  title.textContent = text;
  return title;
}

function drawCell(svg, i, [x, y], value, scale) {
  const same = selected !== undefined && i !== selected && steps.state[i] === steps.state[selected];
  const kinds = ["cell", steps.kind[i], steps.valid[i] ? "" : "invalid", value === null || value === undefined ? "none" : "",
    i === selected ? "selected" : same ? "same" : ""];
  const cell = node(svg, "g", { class: kinds.filter(Boolean).join(" "), "data-step": i, tabindex: i === selected ? 0 : -1, role: "button",
    "aria-label": `turn ${steps.turn[i]}: ${short(data.actions[steps.action[i]], 60)}, ${signed(value)}` });
  const box = { x, y, width: CELL - 4, height: 28 };
  paint(cell, value, scale, box);
  node(cell, "rect", { ...box, rx: 4, class: "frame" });
  node(cell, "text", { class: strong(value, scale) ? "strong" : "", x: x + (CELL - 4) / 2, y: y + 18, "text-anchor": "middle" }, value === null || value === undefined ? "–" : signed(value));
  if (steps.reward[i]) node(cell, "circle", { cx: x + CELL - 9, cy: y + 5, r: 2.5, fill: "var(--mark)" });
  cell.append(titled(`${short(data.states[steps.state[i]], 200)} → ${short(data.actions[steps.action[i]], 200)}`));
  cell.onclick = () => choose(i);
}

// states in lines by their first visit, from above; inside a line near the states that lead to them
function layout(g) {
  const kept = g.states.map((_, k) => k).filter((k) => g.states.length <= FOLD || g.visits[k] > 1 || selected !== undefined &&
    [steps.state[selected], steps.next_state[selected]].includes(g.states[k]));
  const lines = new Map();
  for (const k of kept) { if (!lines.has(g.first[k])) lines.set(g.first[k], []); lines.get(g.first[k]).push(k); }
  const across = {}, at = {};
  [...lines.keys()].sort((a, b) => a - b).forEach((line, order) => {
    const from = (k) => {
      const places = g.edges.filter((e) => e.target === g.states[k] && across[e.source] !== undefined).map((e) => across[e.source]);
      return places.length ? places.reduce((a, b) => a + b, 0) / places.length : 0;
    };
    const list = lines.get(line).map((k) => [from(k), k]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    list.forEach(([, k], n) => {
      across[g.states[k]] = n - (list.length - 1) / 2;
      at[g.states[k]] = { y: 40 + order * 104, level: n - (list.length - 1) / 2, k };
    });
  });
  const levels = Object.values(at).map((p) => p.level), left = Math.min(0, ...levels);
  for (const place of Object.values(at)) place.x = 90 + (place.level - left) * 176;
  return { at, kept, width: 260 + (Math.max(0, ...levels) - left) * 176, height: lines.size * 104 };
}

function mean(values) {
  const given = values.filter((x) => x !== null && x !== undefined);
  return given.length ? given.reduce((a, b) => a + b, 0) / given.length : null;
}

function drawGraph() {
  const g = data.groups[group], [name, values] = measure(), scale = scaleOf(values, rowsOf(group));
  const { at, kept, width, height } = layout(g);
  const svg = clear("graph");
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const marker = node(node(svg, "defs"), "marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 9, markerHeight: 9, orient: "auto" });
  node(marker, "path", { d: "M0 0 L8 4 L0 8 z", fill: "var(--soft)" });
  const parallel = {};
  for (const edge of g.edges) {
    const a = at[edge.source], b = at[edge.target];
    if (!a || !b) continue;
    const pair = [edge.source, edge.target].join();
    parallel[pair] = (parallel[pair] || 0) + 1;
    drawEdge(svg, edge, a, b, parallel[pair], mean(edge.steps.map((i) => values[i])), scale);
  }
  for (const k of kept) drawNode(svg, g, k, at[g.states[k]]);
  const repeated = g.visits.some((v) => v > 1), folded = g.states.length - kept.length;
  byId("merged").textContent = `A circle is a state, its number how many steps left it; an arrow is an action, its width how often it was taken, its colour the mean of ${name}.` +
    (repeated ? "" : " No state of this group was left twice, so methods that compare the steps of one state have nothing to compare here.") +
    (folded ? ` ${folded} states that were left once at most are not drawn.` : "");
}

function drawEdge(svg, edge, a, b, copy, value, scale) {
  // always to the same side of the arrow, so that there and back do not meet; wide around the states between
  const span = Math.hypot(b.x - a.x, b.y - a.y), bend = 30 + 34 * (copy - 1) + (span > 250 ? span / 4 : 0);
  const dx = b.x - a.x, dy = b.y - a.y, far = Math.hypot(dx, dy) || 1;
  const inset = (p, q) => [p.x + (q.x - p.x) / far * 17, p.y + (q.y - p.y) / far * 17];
  const loop = edge.source === edge.target;
  const [x1, y1] = loop ? [a.x + 14, a.y - 9] : inset(a, b), [x2, y2] = loop ? [a.x + 14, a.y + 9] : inset(b, a);
  const cx = loop ? a.x + 44 + 22 * copy : (a.x + b.x) / 2 + dy / far * bend, cy = loop ? a.y : (a.y + b.y) / 2 - dx / far * bend;
  const on = selected !== undefined && edge.steps.includes(selected);
  const line = node(svg, "g", { class: "edge", "data-uses": edge.steps.length, "data-mean": value === null ? "" : value.toFixed(4), "data-action": data.actions[edge.action] });
  node(line, "path", { d: `M${x1} ${y1} Q${cx} ${cy} ${x2} ${y2}`, fill: "none", "marker-end": "url(#tip)",
    stroke: value === null ? "var(--soft)" : value >= 0 ? "var(--pos)" : "var(--neg)",
    "stroke-opacity": value === null ? 0.4 : (0.25 + 0.75 * Math.min(1, Math.abs(value) / scale)).toFixed(3),
    "stroke-width": Math.min(9, 1 + 1.2 * Math.sqrt(edge.steps.length)) + (on ? 2 : 0) });
  const label = `${short(data.actions[edge.action], 22)} ${signed(value)}`;
  const text = node(line, "text", { x: (x1 + 2 * cx + x2) / 4 + (loop ? 4 : 0), y: (y1 + 2 * cy + y2) / 4 + (loop ? 14 * copy - 10 : 4), "text-anchor": loop ? "start" : "middle", class: on ? "halo" : "halo soft" }, label);
  if (on) text.setAttribute("font-weight", 600);
  line.append(titled(`${data.actions[edge.action]}: taken ${edge.steps.length} times, mean ${signed(value, 4)}`));
  line.style.cursor = "pointer";
  line.onclick = () => choose(edge.steps[0]);
}

function drawNode(svg, g, k, { x, y }) {
  const state = g.states[k], on = selected !== undefined && steps.state[selected] === state;
  const group = node(svg, "g", { class: on ? "node selected" : "node", "data-state": state, "data-visits": g.visits[k] });
  node(group, "circle", { cx: x, cy: y, r: Math.min(20, 9 + 2 * Math.sqrt(g.visits[k])) });
  if (g.score[k] !== null) {
    const scores = g.score.filter((s) => s !== null), low = Math.min(0, ...scores), high = Math.max(...scores);
    node(group, "circle", { cx: x, cy: y, r: Math.min(20, 9 + 2 * Math.sqrt(g.visits[k])), style: `fill: var(--pos); fill-opacity: ${(high > low ? 0.7 * (g.score[k] - low) / (high - low) : 0).toFixed(3)}` });
  }
  node(group, "text", { x, y: y + 4, "text-anchor": "middle" }, g.visits[k] || "");
  node(group, "text", { x, y: y + 34, "text-anchor": "middle", class: "halo" }, short(data.states[state], 22));
  group.append(titled(`${short(data.states[state], 400)}\nleft ${g.visits[k]} times, mean score ${plain(g.score[k])}`));
  const first = rowsOf(data.groups.indexOf(g)).find((i) => steps.state[i] === state);
  if (first !== undefined) group.onclick = () => choose(first);
}

function elsewhere() {
  return rowsOf(group).filter((i) => steps.state[i] === steps.state[selected]);
}

function drawStep() {
  const panel = clear("step");
  if (selected === undefined) { byId("where").textContent = "choose a cell"; return; }
  const i = selected, episode = data.episodes.find((e) => e.steps.includes(i));
  byId("where").textContent = `${episode.agent ? episode.agent + ", " : ""}episode ${episode.name}, turn ${steps.turn[i]}, row ${steps.row[i]}`;
  const seen = steps.observation[i] >= 0 ? data.texts[steps.observation[i]] : data.states[steps.state[i]];
  node(panel, "b", {}, steps.observation[i] >= 0 ? "It saw" : "State");
  node(panel, "pre", { id: "saw" }, seen);
  node(panel, "b", {}, "It wrote");
  if (steps.tokens[i].length) drawTokens(panel, steps.tokens[i]);
  if (!steps.tokens[i].length || steps.answer[i] >= 0) node(panel, "pre", { id: "answered" }, steps.answer[i] >= 0 ? data.texts[steps.answer[i]] : data.actions[steps.action[i]]);
  const did = data.actions[steps.action[i]];
  if (steps.answer[i] >= 0 && data.texts[steps.answer[i]].trim() !== did.trim()) node(panel, "p", { class: "soft" }, `carried out as: ${short(did, 200)}`);
  const said = [`reward ${plain(steps.reward[i])}`, `status ${steps.status[i]}`, steps.valid[i] ? "valid" : "invalid", steps.kind[i]];
  for (const name in steps.values) if (steps.values[name][i] !== null) said.push(`${name} ${plain(steps.values[name][i])}`);
  node(panel, "p", { class: "soft" }, said.join(", "));
  drawParts(panel, i);
  const others = elsewhere();
  const line = node(panel, "p", {}, `${others.length} ${others.length === 1 ? "step leaves" : "steps leave"} this state in this group. `);
  if (others.length > 1) {
    for (const [words, by] of [["previous (p)", -1], ["next (n)", 1]]) {
      node(line, "button", {}, words).onclick = () => choose(others[(others.indexOf(i) + by + others.length) % others.length]);
    }
  }
  for (const more of stepExtras) more(panel, i);
}

function drawTokens(panel, tokens) {
  const line = node(panel, "p", { class: "tokens" });
  for (const [text, logprob, allowed] of tokens) {
    const span = node(line, "span", { title: `log-prob ${logprob} nats` + (allowed ? `, ${allowed} tokens allowed` : "") }, text);
    span.style.background = `color-mix(in srgb, var(--mark) ${Math.round(Math.min(1, -logprob / 4) * 60)}%, transparent)`;
  }
  node(line, "span", { class: "soft" }, "  (darker: less likely)");
}

function drawParts(panel, i) {
  const table = node(panel, "table", { id: "parts" }), head = node(table, "tr");
  for (const word of ["method", "advantage", "its parts"]) node(head, "th", { class: word === "its parts" ? "words" : "" }, word);
  for (const m of data.methods) {
    const row = node(table, "tr"), a = m.advantage[i];
    node(row, "td", {}, m.name);
    node(row, "td", { class: a ? (a > 0 ? "pos" : "neg") : "soft" }, signed(a, 4));
    const parts = Object.entries(m.parts).map(([name, values]) => `${name} ${plain(values[i])}`);
    if (m.weight[i] !== 1 && a !== null) parts.push(`weight ${plain(m.weight[i])}`);
    node(row, "td", { class: "soft words" }, parts.join(", "));
  }
}

function drawAgreement() {
  const section = clear("agreement");
  if (!data.agreement.length) return;
  node(section, "h2", {}, "Do the methods agree?");
  const table = node(section, "table"), head = node(table, "tr");
  for (const word of ["methods", "steps", "correlation", "signs differ", "most apart"]) node(head, "th", {}, word);
  for (const pair of data.agreement) {
    const row = node(table, "tr");
    node(row, "td", {}, pair.methods.join(" and "));
    node(row, "td", {}, String(pair.steps));
    node(row, "td", {}, pair.correlation === null ? "none" : pair.correlation.toFixed(3));
    node(row, "td", {}, (100 * pair.sign_disagreements).toFixed(1) + "%");
    const links = node(row, "td", {});
    for (const step of pair.most_apart) {
      const at = steps.row.indexOf(step.row);
      if (at >= 0) node(links, "button", { title: pair.methods.map((m) => `${m} ${signed(step[m])}`).join(", ") }, `row ${step.row}`).onclick = () => choose(at);
    }
  }
}

function draw() {
  drawTabs();
  drawTimeline();
  drawGraph();
  drawStep();
  if (selected !== undefined) history.replaceState(null, "", `#${new URLSearchParams({ ...address(), row: steps.row[selected], method: chosen().name })}`);
}

function choose(i) {
  const owner = data.episodes.find((e) => e.steps.includes(i));
  if (owner.group !== group) { group = owner.group; filter = "all episodes"; }
  if (!visibleEpisodes().some((e) => data.episodes[e] === owner)) filter = "all episodes";
  selected = i;
  draw();
  const cell = document.querySelector(`[data-step="${i}"]`);
  if (cell) { cell.focus({ preventScroll: true }); cell.scrollIntoView({ block: "nearest", inline: "nearest" }); }
}

function move(along, across) {
  const episodes = visibleEpisodes();
  if (selected === undefined) { if (episodes.length) choose(data.episodes[episodes[0]].steps[0]); return; }
  let line = episodes.findIndex((e) => data.episodes[e].steps.includes(selected));
  const own = data.episodes[episodes[line]].steps, at = own.indexOf(selected);
  if (along) { const to = own[at + along]; if (to !== undefined) choose(to); return; }
  line = Math.min(episodes.length - 1, Math.max(0, line + across));
  const other = data.episodes[episodes[line]].steps;
  choose(other[Math.min(at, other.length - 1)]);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (arrows[event.key]) { move(...arrows[event.key]); event.preventDefault(); }
  else if ((event.key === "n" || event.key === "p") && selected !== undefined) {
    const others = elsewhere();
    choose(others[(others.indexOf(selected) + (event.key === "n" ? 1 : -1) + others.length) % others.length]);
  } else if (event.key >= "1" && event.key <= "9" && data.methods[Number(event.key) - 1]) { method = Number(event.key) - 1; draw(); }
}

function listen() {
  byId("measure").onchange = (event) => { shownAs = event.target.value; draw(); };
  byId("groups").onchange = (event) => { group = Number(event.target.value); selected = undefined; draw(); };
  byId("filter").onchange = (event) => { filter = event.target.value; draw(); };
  document.addEventListener("keydown", keys);
}

// these data from now on, not yet drawn; `asked` holds the method of an address
function take(loaded, asked) {
  data = loaded;
  steps = data.steps;
  method = Math.max(0, data.methods.findIndex((m) => m.name === asked.get("method")));
  group = widest();
  filter = "all episodes";
  selected = undefined;
  byId("title").textContent = data.title;
  byId("subtitle").textContent = [data.subtitle, data.shown].filter(Boolean).join(" · ");
}

// show these data from now on; `asked` holds the row and the method of an address
function show(loaded, asked) {
  take(loaded, asked);
  const at = asked.has("row") ? steps.row.indexOf(Number(asked.get("row"))) : -1;
  if (!data.groups.length) byId("legend").textContent = "There are no steps.";
  else { drawAgreement(); if (at >= 0) choose(at); else draw(); }
  document.body.dataset.ready = "yes";
}

async function start() {
  const packed = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const loaded = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  shownAs = "advantage";
  listen();
  show(loaded, new URLSearchParams(location.hash.slice(1)));
}

if (byId("data")) start();
