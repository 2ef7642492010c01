// Texts beside the numbers: what options and parts mean, and why a step has its credit.

// lists the options and parts of the chosen method, each with its meaning
function drawMeanings() {
  const box = byId("meanings"), list = box.querySelector("dl"), meanings = chosen().meanings || {}, options = chosen().options;
  list.replaceChildren();
  for (const [name, text] of Object.entries(meanings)) {
    node(list, "dt", {}, name in options ? `${name}=${typeof options[name] === "string" ? options[name] : JSON.stringify(options[name])}` : name);
    node(list, "dd", {}, text);
  }
  box.hidden = !list.childElementCount;
}

// the arithmetic of the step's credit, by each method that has words for it
function drawWhy(panel, i) {
  for (const m of data.methods) {
    if (m.why && m.why[i]) node(panel, "p", { class: "why", "data-method-why": m.name }, `${m.name}: ${m.why[i]}.`);
  }
}

// a sentence, if the same action in the same state got very different credit elsewhere: credit depends on later steps
function drawSameAction(panel, i, others) {
  const credit = chosen().advantage, own = credit[i], scale = scaleOf(credit, rowsOf(group));
  const same = others.filter((k) => k !== i && steps.action[k] === steps.action[i] && credit[k] !== null && credit[k] !== undefined);
  if (own === null || own === undefined || !same.some((k) => Math.abs(credit[k] - own) > scale / 4)) return;
  const got = new Map();
  for (const k of same) got.set(signed(credit[k]), (got.get(signed(credit[k])) || 0) + 1);
  const times = (n) => n === 1 ? "once" : n === 2 ? "twice" : `${n} times`;
  const episode = data.episodes.find((one) => one.steps.includes(i)), end = episode.failed ? "was later lost to a fault" : episode.succeeded ? "later succeeded" : "later failed";
  node(panel, "p", { id: "same-action" }, `In other steps from this state, the same action got ${[...got].map(([value, n]) => `${value} ${times(n)}`).join(", ")}. It got ${signed(own)} in this episode, which ${end}. Credit depends on what came after the action; it does not say whether the action was right.`);
}

// scrolls the chosen cell near the top of the window, so that the panel of the step, below the cells, is also seen
function reveal() {
  const cell = document.querySelector(".cell.selected");
  if (!cell) return;
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  cell.focus({ preventScroll: true });
  scrollBy(0, cell.getBoundingClientRect().top - 130);
}

// the action that was carried out, if its text differs from the answer
function drawDone(panel, i) {
  const did = data.actions[steps.action[i]];
  if (steps.answer[i] >= 0 && data.texts[steps.answer[i]].trim() !== did.trim()) node(panel, "p", { class: "soft done" }, `carried out as: ${short(did, 200)}`);
}
