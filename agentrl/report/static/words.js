// Words beside the numbers: what options and parts mean, and how a step came to its credit.

// the chosen method's options and parts, each with its meaning
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
