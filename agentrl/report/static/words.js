// Texts and tables beside the numbers: what options and parts mean, why a step has its credit, and whether methods agree.

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

function drawAgreement() {
  const section = clear("agreement");
  if (!data.agreement.length) return;
  node(section, "h3", {}, "Do the methods agree?");
  const table = node(node(section, "div", { class: "scroll" }), "table"), head = node(table, "tr");
  for (const word of ["methods", "steps", "correlation", "signs differ"]) node(head, "th", {}, word);
  for (const pair of data.agreement) {
    const row = node(table, "tr");
    node(row, "td", {}, pair.methods.join(" and "));
    node(row, "td", {}, String(pair.steps));
    node(row, "td", {}, pair.correlation === null ? "none" : fixed(pair.correlation, 3));
    node(row, "td", {}, fixed(100 * pair.sign_disagreements, 1) + "%");
  }
  for (const pair of data.agreement) if (pair.most_apart.some((step) => step.apart > 0)) drawApart(section, pair);
  node(section, "p", { class: "soft" }, "Computed over all stored steps, not only the shown ones. Apart: the difference of the two advantages, each divided by the root mean square of its method's advantages, so that methods of different scale can be compared.");
}

// the steps at which two methods differ most, with both numbers
function drawApart(section, pair) {
  node(section, "h3", {}, `Steps at which ${pair.methods.join(" and ")} differ most`);
  const table = node(node(section, "div", { class: "scroll" }), "table", { class: "apart" }), head = node(table, "tr");
  for (const [word, kind] of [["step", "words"], ...pair.methods.map((m) => [m, ""]), ["apart", ""], ["", ""]]) node(head, "th", { class: kind }, word);
  for (const step of pair.most_apart.filter((one) => one.apart > 0)) {
    const row = node(table, "tr"), at = steps.row.indexOf(step.row);
    node(row, "td", { class: "words", title: [step.group, step.state].filter(Boolean).join("\n") }, `${step.episode ? `episode ${step.episode.split("/").pop()}, ` : ""}turn ${step.turn}: ${short(step.action || step.answer || `row ${step.row}`, 40)}`);
    for (const m of pair.methods) node(row, "td", {}, signed(step[m]));
    node(row, "td", {}, fixed(step.apart, 2));
    const link = node(row, "td", {});
    if (at >= 0) node(link, "button", { "aria-label": `open row ${step.row}` }, "open").onclick = () => choose(at);
    else node(link, "span", { class: "soft" }, "not shown");
  }
}

// the endings of episodes
const ENDED = { done: "the environment ended it", turn_limit: "the limit of turns was reached", token_limit: "the limit of tokens was reached", turn_token_limit: "an answer was cut off at its token limit",
  call_limit: "the limit of tool calls was reached", depth_limit: "calls of agents were nested too deep", time_limit: "the time limit was reached", context_limit: "the prompt did not fit the model's context", refused: "a content filter refused the prompt", env_error: "lost to a fault, not scored",
  overlong_prompt: "the first prompt did not fit the model's context, not scored" };
