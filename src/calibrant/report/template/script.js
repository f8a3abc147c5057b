// The interactive parts of the page: the two methods shown, the order of tables, and the explorer.
// Without it the page shows the model as it is and the recommended method.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("scripted");

// The two methods shown in diagrams, histograms, classes and risk.

const choosers = [...document.querySelectorAll("[data-chooser]")];
const chosen = { first: data.before, second: data.after };

function show() {
  for (const select of choosers) select.value = chosen[select.dataset.chooser];
  for (const element of document.querySelectorAll("[data-method]")) {
    const name = element.dataset.method;
    const visible = name === chosen.first || name === chosen.second;
    element.toggleAttribute("hidden", !visible);
    element.classList.toggle("first", name === chosen.first && name !== chosen.second);
    element.classList.toggle("second", name === chosen.second);
    if (element.tagName === "FIGURE") element.style.order = name === chosen.first ? 0 : 1;
  }
}

for (const select of choosers) {
  select.addEventListener("change", () => {
    chosen[select.dataset.chooser] = select.value;
    show();
  });
}
show();

// Tables, sorted by the clicked head; rows without a figure stay last.

function cellKey(row, column, kind) {
  const cell = row.cells[column];
  if (!cell) return null;
  if (kind === "text") return cell.textContent.trim();
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
}

function sortBy(table, head, direction) {
  const column = head.cellIndex;
  const kind = head.dataset.sort;
  const sign = direction === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: cellKey(row, column, kind) }));
  rows.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    if (kind === "text") return sign * a.key.localeCompare(b.key, undefined, { numeric: true });
    return sign * (a.key - b.key);
  });
  body.append(...rows.map(({ row }) => row));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const opposite = { ascending: "descending", descending: "ascending" };
      const now = head.getAttribute("aria-sort");
      sortBy(table, head, opposite[now] || head.dataset.first || "ascending");
    });
  }
}

// The explorer: precomputed bins at the point of the two sliders.

const grid = data.explorer;
const sliders = {
  gamma: document.getElementById("gamma"),
  temperature: document.getElementById("temperature"),
};

function errorAt(g, t) {
  const correct = grid.correct[g][t];
  const gaps = grid.confidence[g][t].map((sum, i) => Math.abs(sum - correct[i]));
  return gaps.reduce((a, b) => a + b, 0) / grid.n;
}

function percent(share) {
  const points = 100 * share;
  if (points >= 99.995) return points >= 100 ? "100%" : ">99.99%";
  return points.toFixed(9.995 <= points && points < 98.95 ? 1 : 2) + "%";
}

function place(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function drawBins(svg, g, t) {
  const top = Number(svg.dataset.top);
  const size = Number(svg.dataset.size);
  const strip = Number(svg.dataset.strip);
  const counts = grid.count[g][t];
  const most = Math.max(...counts, 1);
  const edges = (i) => percent(i / counts.length);
  const [probability, rate] = data.axes;
  svg.querySelectorAll(".bin").forEach((bin, i) => {
    const full = Math.max(counts[i], 1);
    const accuracy = grid.correct[g][t][i] / full;
    const confidence = grid.confidence[g][t][i] / full;
    const gap = bin.querySelector(".gap");
    place(bin.querySelector(".bar"), { y: top + size * (1 - accuracy), height: size * accuracy });
    place(gap, {
      y: top + size * (1 - Math.max(accuracy, confidence)),
      height: size * Math.abs(accuracy - confidence),
    });
    gap.classList.toggle("over", confidence > accuracy);
    gap.classList.toggle("under", confidence <= accuracy);
    // Equivalent to: Wilson's interval of the accuracy contains the confidence.
    const noise = Math.sqrt((confidence * (1 - confidence)) / full);
    gap.classList.toggle("pale", Math.abs(confidence - accuracy) <= data.normal_quantile * noise);
    place(bin.querySelector(".count"), { height: (strip * counts[i]) / most });
    bin.querySelector("title").textContent = counts[i]
      ? `${edges(i)} to ${edges(i + 1)}: ${probability} ${percent(confidence)}, ` +
        `${rate} ${percent(accuracy)}; ${counts[i]} sample${counts[i] === 1 ? "" : "s"}`
      : "no samples";
  });
}

// Psi^gamma(softmax(log q / T)) of three probabilities:
// log h(p) = log p - gamma log(1 - p) - log(1 + gamma p u),  u = -log(p) / (1 - p).
function mapped(q, gamma, temperature) {
  const softmax = (scores) => {
    const top = Math.max(...scores);
    const powers = scores.map((score) => Math.exp(score - top));
    const total = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / total);
  };
  const p = softmax(q.map((share) => Math.log(share) / temperature));
  const logs = p.map((share, i) => {
    // The sum of the others, because 1 - p would lose small values.
    const rest = Math.max(p.reduce((sum, other, k) => (k === i ? sum : sum + other), 0), 1e-300);
    const u = -(rest < 0.5 ? Math.log1p(-rest) : Math.log(Math.max(share, 1e-300))) / rest;
    const own = Math.log(Math.max(share, 1e-300));
    return own - gamma * Math.log(rest) - Math.log(1 + gamma * share * u);
  });
  return softmax(logs);
}

function drawArrows(svg, gamma, temperature) {
  const left = Number(svg.dataset.left);
  const floor = Number(svg.dataset.floor);
  const size = Number(svg.dataset.size);
  const height = Math.sqrt(0.75);
  for (const arrow of svg.querySelectorAll(".arrow")) {
    const x = (Number(arrow.getAttribute("x1")) - left) / size;
    const y = (floor - Number(arrow.getAttribute("y1"))) / size / height;
    const end = mapped([1 - x - y / 2, x - y / 2, y], gamma, temperature);
    place(arrow, {
      x2: (left + size * (end[1] + end[2] / 2)).toFixed(2),
      y2: (floor - size * height * end[2]).toFixed(2),
    });
  }
}

function moveMark(svg, g, t) {
  const [rows, columns] = [grid.gammas.length, grid.temperatures.length];
  place(svg.querySelector(".here"), {
    cx: Number(svg.dataset.left) + (Number(svg.dataset.width) * (t + 0.5)) / columns,
    cy: Number(svg.dataset.top) + (Number(svg.dataset.height) * (rows - 0.5 - g)) / rows,
  });
}

function explore() {
  const [g, t] = [Number(sliders.gamma.value), Number(sliders.temperature.value)];
  const [gamma, temperature] = [grid.gammas[g], grid.temperatures[t]];
  document.getElementById("gamma-value").textContent = gamma;
  document.getElementById("temperature-value").textContent = temperature;
  sliders.gamma.setAttribute("aria-valuetext", `gamma ${gamma}`);
  sliders.temperature.setAttribute("aria-valuetext", `T ${temperature}`);
  const error = percent(errorAt(g, t));
  document.getElementById("explored-error").textContent = error;
  const diagram = document.getElementById("explored");
  diagram.setAttribute("aria-label", `Reliability diagram at gamma ${gamma}, T ${temperature}: calibration error ${error}`);
  drawBins(diagram, g, t);
  drawArrows(document.getElementById("simplex"), gamma, temperature);
  moveMark(document.getElementById("heat"), g, t);
}

function goTo(g, t) {
  sliders.gamma.value = g;
  sliders.temperature.value = t;
  explore();
}

function smallest() {
  let best = [0, 0];
  grid.gammas.forEach((_, g) => {
    grid.temperatures.forEach((_, t) => {
      if (errorAt(g, t) < errorAt(...best)) best = [g, t];
    });
  });
  return best;
}

for (const slider of Object.values(sliders)) slider.addEventListener("input", explore);
for (const button of document.querySelectorAll(".marks [data-gamma]")) {
  button.addEventListener("click", () => goTo(button.dataset.gamma, button.dataset.temperature));
}
document.getElementById("smallest").addEventListener("click", () => goTo(...smallest()));
document.getElementById("heat").addEventListener("click", (event) => {
  const cell = [...event.currentTarget.querySelectorAll("rect")].indexOf(event.target);
  if (cell < 0) return;
  goTo(Math.floor(cell / grid.temperatures.length), cell % grid.temperatures.length);
});
explore();
