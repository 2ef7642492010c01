// The inspector: requests stored steps, credit, episodes and the state of the run from the server that sent this page.
// It only reads. Every text goes into the page by textContent, as in the credit page.
{ // a block, so that its names do not collide with those of credit.js, which stands before this script
const POLL_MS = 2000, MOST_SHOWN = 200, STORED = "as trained";
let run, forms, wanted = [], onlyGroup, answer, latest = 0, searches = 0;

async function ask(route, query) {
  let response;
  try {
    response = await fetch(`${route}${query ? "?" + query : ""}`);
  } catch {
    throw new Error("agentrl report --serve does not answer: it was stopped or suspended; start it again");
  }
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

const problem = (text) => { byId("problem").textContent = text; };
const keysOf = (r) => [...r.iterations.map((n) => `iteration:${n}`), ...r.evaluations.map((n) => `evaluation:${n}`)];
const named = (key) => key.replace(/^(\w+):/, "$1 ");

function listSets() {
  page.sets = keysOf(run).map((key) => [key, named(key), key.startsWith("iteration:") ? "training" : "held-out evaluations"]);
  drawSets();
}

// draws the success rate of the training batches as a small curve
function drawSpark() {
  const svg = clear("spark"), points = run.success.filter(([, y]) => typeof y === "number");
  if (points.length < 2) return;
  const xs = points.map(([x]) => x), first = Math.min(...xs), span = Math.max(1, Math.max(...xs) - first);
  const line = points.map(([x, y]) => `${(2 + 216 * (x - first) / span).toFixed(1)},${(25 - 22 * y).toFixed(1)}`).join(" ");
  node(svg, "polyline", { points: line, fill: "none", stroke: "var(--pos)", "stroke-width": 1.5 });
  const last = points[points.length - 1];
  svg.setAttribute("aria-label", `success in training, ${(100 * last[1]).toFixed(0)}% in iteration ${last[0]}`);
  svg.append(titled(svg.getAttribute("aria-label")));
}

function drawStanding() {
  byId("standing").textContent = `${run.name}: ${run.sentence}`;
  document.title = `${run.name}: inspector`;
  listSets();
  drawSpark();
}

function drawMethods() {
  const line = clear("shown");
  wanted.forEach((one, place) => {
    const form = forms.find((f) => f.name === one.name), usual = Object.fromEntries((form ? form.options : []).map((o) => [o.key, o.default]));
    const alike = (a, b) => a === b || a !== "" && b !== "" && Number(a) === Number(b); // 0.000001 is 1e-06
    const other = one.options.filter((option) => !alike(option.slice(option.indexOf("=") + 1), usual[option.slice(0, option.indexOf("="))] ?? "")).join(" ");
    const chip = node(line, "span", { class: "chip", title: one.options.join(" ") }, one.name + (other ? ` ${other} ` : " "));
    if (wanted.length > 1) node(chip, "button", { type: "button", "aria-label": `remove ${one.name}` }, "×").onclick = () => { wanted.splice(place, 1); load(); };
  });
}

function drawForm() {
  const form = forms.find((one) => one.name === byId("name").value), fields = clear("fields");
  byId("paper").textContent = [form.paper, form.needs.length ? `needs ${form.needs.join(", ")}` : ""].filter(Boolean).join("; ");
  for (const option of form.options) {
    const label = node(fields, "label", { title: option.note }, `${option.key} `);
    const values = option.kind === "switch" ? ["true", "false"] : option.choices;
    const field = option.kind === "switch" || option.kind === "choice" ? node(label, "select") : node(label, "input", { type: option.kind, ...(option.kind === "number" ? { step: "any" } : { size: 10 }) });
    for (const value of values) if (field.tagName === "SELECT") node(field, "option", { value }, String(value));
    field.name = option.key;
    const own = form.name === run.credit.name ? run.credit.options[option.key] : undefined;
    field.value = own === undefined ? option.default : Array.isArray(own) ? own.join(",") : String(own);
    field.dataset.default = option.default;
  }
}

function query() {
  const found = new URLSearchParams({ source: page.shown });
  for (const one of wanted) found.append("method", one.name);
  wanted.forEach((one, place) => one.options.forEach((option) => found.append("option", `${place}:${option}`)));
  if (onlyGroup !== undefined) found.append("group", onlyGroup);
  return found;
}

// requests and shows the chosen steps and methods; returns true, or false after an error. If a later call of `load` has
// begun before the answer comes, the answer is not shown and the result is null
async function load(asked) {
  const mine = ++latest;
  document.body.classList.add("busy");
  try {
    const found = await ask("credit", query());
    if (mine !== latest) return null;
    answer = found;
    show(found.data, asked);
    problem("");
  } catch (error) {
    if (mine !== latest) return null;
    problem(error.message);
    return false;
  } finally {
    if (mine === latest) { document.body.classList.remove("busy"); drawMethods(); listSets(); }
  }
  return true;
}

// like `load`; if the steps have no stored credit, it shows the error message and the other methods
async function loadSteps(asked) {
  const fine = await load(asked);
  if (fine !== false || !wanted.some((one) => one.name === STORED)) return fine;
  const told = byId("problem").textContent;
  wanted = wanted.filter((one) => one.name !== STORED);
  if (!wanted.length) wanted = [ownMethod()];
  const others = await load(asked);
  if (others) problem(told);
  return others;
}

async function turnTo(key, asked) {
  page.shown = key;
  onlyGroup = undefined;
  const trained = key.startsWith("iteration:");
  if (!trained) wanted = wanted.filter((one) => one.name !== STORED);
  if (!wanted.length) wanted = [ownMethod()];
  byId("found").hidden = true;
  return loadSteps(asked);
}

function ownMethod() {
  if (!run.credit.known) return { name: "grpo", options: [] };
  const options = Object.entries(run.credit.options).map(([key, value]) => `${key}=${Array.isArray(value) ? value.join(",") : value}`);
  return { name: run.credit.name, options };
}

async function add(event) {
  event.preventDefault();
  const options = [...byId("fields").querySelectorAll("input, select")].filter((f) => f.value !== f.dataset.default).map((f) => `${f.name}=${f.value}`);
  const added = { name: byId("name").value, options };
  wanted.push(added);
  const fine = await load();
  if (fine === false) { wanted = wanted.filter((one) => one !== added); drawMethods(); }
  else if (fine) { method = data.methods.length - 1; draw(); }
}

// sends requests until all is searched, or about MOST_SHOWN more episodes are found; a later search ends this one
async function search(event) {
  event.preventDefault();
  const within = byId("within").value, asked = new URLSearchParams(within ? { within } : { source: page.shown });
  for (const name of ["task", "ending", "success", "text"]) if (byId(name).value) asked.set(name, byId(name).value);
  await searchOn(asked, { episodes: [], more: 0, of: 0, searched: 0, sources: 0, unread: [], next: "" });
}

async function searchOn(asked, found) {
  const mine = ++searches, enough = found.episodes.length + MOST_SHOWN;
  try {
    do {
      if (found.next) asked.set("from", found.next);
      const part = await ask("episodes", asked);
      if (mine !== searches) return;
      found = { episodes: [...found.episodes, ...part.episodes], more: found.more + part.more, of: found.of + part.of, searched: found.searched + part.searched,
        sources: found.sources || part.sources, unread: [...found.unread, ...part.unread], next: part.next };
      drawFound(found, asked, found.next && found.episodes.length < enough);
    } while (found.next && found.episodes.length < enough);
    problem("");
  } catch (error) { problem(error.message); }
}

function drawFound(found, asked, goesOn) {
  const panel = clear("found"), all = found.sources > 1;
  panel.hidden = false;
  const total = found.episodes.length + found.more, several = new Set(found.episodes.map((one) => one.agent)).size > 1;
  node(panel, "b", {}, `${total} of ${found.of} episodes` + (found.more ? `, ${found.episodes.length} are listed` : ""));
  if (all) node(panel, "span", { class: "soft" }, ` ${goesOn ? "searching: " : ""}${found.searched} of ${found.sources} files searched, the newest first ` + (found.unread.length ? `(not readable: ${found.unread.map(named).join(", ")}) ` : ""));
  if (found.next && !goesOn) node(panel, "button", { type: "button", id: "search-on" }, `search on from ${named(found.next)}`).onclick = () => searchOn(asked, found);
  const table = node(panel, "table"), head = node(table, "tr");
  for (const word of [...(all ? ["in"] : []), "task", "episode", "ending", "success", "score", "steps", ""]) node(head, "th", { class: "words" }, word);
  for (const one of found.episodes) {
    const row = node(table, "tr", { "data-row": one.row, "data-source": one.source, tabindex: 0 });
    const who = [several ? one.agent : "", String(one.episode), one.kind === "played" ? "" : one.kind].filter(Boolean).join(" ");
    for (const cell of [...(all ? [named(one.source)] : []), short(one.task, 48), who, one.ending, one.succeeded ? "✓" : "✗", plain(one.score), one.steps, one.snippet]) node(row, "td", {}, String(cell));
    row.title = one.task;
    row.onclick = () => jump(one);
    row.onkeydown = (event) => { if (event.key === "Enter") jump(one); };
  }
}

async function jump(one) {
  if (one.source !== page.shown) {
    byId("follow").checked = false;
    if (!await turnTo(one.source)) return;
    byId("found").hidden = false;
  }
  if (!steps.row.includes(one.row)) { onlyGroup = one.group; if (!await load()) return; }
  const at = steps.row.indexOf(one.row);
  if (at >= 0) choose(at);
}

function drawBranch(panel, i) {
  if (!answer.branch || steps.kind[i] !== "played") return;
  const line = node(panel, "p", { class: "command" }), command = `${answer.branch} --episode ${answer.episode[i]} --turn ${steps.turn[i]}`;
  const shown = node(line, "code", { id: "command", hidden: "" }, command);
  node(line, "button", { id: "branch", title: "show the command that plays new continuations from this step" }, "branch from here").onclick = () => { shown.hidden = !shown.hidden; };
  line.prepend(line.lastChild);
}

async function poll() {
  try {
    const before = keysOf(run), told = byId("problem").textContent;
    run = await ask("run");
    if (told.startsWith("agentrl report --serve does not answer")) problem("");
    drawStanding();
    const newest = run.iterations[run.iterations.length - 1];
    if (byId("follow").checked && newest !== undefined && !before.includes(`iteration:${newest}`)) await turnTo(`iteration:${newest}`);
  } catch (error) { problem(error.message); }
  setTimeout(poll, POLL_MS);
}

async function inspect() {
  listen(document);
  try {
    [run, forms] = await Promise.all([ask("run"), ask("methods")]);
  } catch (error) { problem(error.message); return; }
  for (const form of forms) node(byId("name"), "option", { value: form.name }, form.name);
  if (run.credit.known) byId("name").value = run.credit.name;
  node(byId("ending"), "option", { value: "" }, "any");
  for (const ending of Object.keys(ENDED)) node(byId("ending"), "option", { value: ending }, ending);
  byId("name").onchange = drawForm;
  byId("adding").onsubmit = add;
  byId("searching").onsubmit = search;
  byId("forget").onclick = () => { searches += 1; byId("searching").reset(); byId("found").hidden = true; };
  page.turn = (key) => { byId("follow").checked = false; turnTo(key); };
  page.extras.push(drawBranch);
  page.address = () => onlyGroup === undefined ? {} : { group: onlyGroup };
  drawForm();
  const asked = hash(), keys = keysOf(run);
  const newest = run.iterations.length ? `iteration:${run.iterations[run.iterations.length - 1]}` : keys[0];
  byId("follow").checked = !asked.has("source") && run.state === "running";
  page.shown = keys.includes(asked.get("source")) ? asked.get("source") : newest;
  if (page.shown.startsWith("iteration:")) wanted = [{ name: STORED, options: [] }];
  const last = wanted.concat(asked.get("method") && forms.some((f) => f.name === asked.get("method")) && asked.get("method") !== run.credit.name ? [{ name: asked.get("method"), options: [] }] : []);
  wanted = [...last, ...(run.credit.known ? [ownMethod()] : [])];
  if (!wanted.length) wanted = [{ name: "grpo", options: [] }];
  if (asked.has("group")) onlyGroup = asked.get("group");
  drawStanding();
  await loadSteps(asked);
  document.body.dataset.ready = "yes";
  setTimeout(poll, POLL_MS);
}

inspect();
}
