// Draws charts that can be zoomed, smoothed and kept as files, and keeps the pages of a running
// run up to date. Without it, pages show the same numbers as tables and as charts that stand still.
"use strict";

const EVERY_MS = 2500;
const COLOURS = ["#1259a8", "#c2571a", "#27803c", "#8a3ea8", "#b3263f", "#00808a", "#7a6000", "#555f6e"];
const HEIGHT = 190;
const root = document.body.dataset.root;
const chosen = { smoothing: 0, isLog: false, hasSingle: false };
const drawn = new Map(); // figure -> { plot, numbers, seen }

function colourOf(line, share) {
  const colour = COLOURS[line.colour % COLOURS.length];
  return share ? colour + share : colour;
}

function smoothed(values) {
  const width = chosen.smoothing;
  if (width < 2) return values;
  const last = [];
  return values.map((value) => {
    if (value === null) return null;
    last.push(value);
    if (last.length > width) last.shift();
    return last.reduce((sum, one) => sum + one, 0) / last.length;
  });
}

function onAxis(values) {
  return chosen.isLog ? values.map((value) => (value !== null && value > 0 ? value : null)) : values;
}

function number(value) {
  if (value === null || value === undefined) return "\u2013";
  const size = Math.abs(value);
  if (size > 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0*e/, "e");
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

function inParts(numbers) {
  const data = [numbers.steps];
  const series = [{ label: "step" }];
  const bands = [];
  for (const line of numbers.lines) {
    if (line.single && !chosen.hasSingle) continue;
    const few = line.values.filter((value) => value !== null).length < 20;
    data.push(onAxis(smoothed(line.values)));
    series.push({
      label: numbers.lines.length > 1 ? line.label : "value", stroke: colourOf(line, line.single ? "55" : ""), width: line.single ? 1 : 2,
      spanGaps: true, points: { show: few, size: 5 }, value: (_, value) => number(value),
    });
    if (!line.low) continue;
    for (const edge of [line.high, line.low]) {
      data.push(onAxis(smoothed(edge)));
      series.push({ label: line.label + (edge === line.low ? " less" : " plus") + " one deviation", stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, value: (_, value) => number(value), isEdge: true });
    }
    bands.push({ series: [series.length - 2, series.length - 1], fill: colourOf(line, "26") });
  }
  return { data, series, bands };
}

function draw(figure, numbers) {
  const before = drawn.get(figure);
  if (before && before.plot) before.plot.destroy();
  for (const old of figure.querySelectorAll("svg, .numbers, .legend, .tools, .still")) old.remove();
  const { data, series, bands } = inParts(numbers);
  if (data.length < 2 || !numbers.steps.length) return;
  const plot = new uPlot({
    width: Math.max(240, figure.clientWidth - 26), height: HEIGHT, series, bands,
    scales: { x: { time: false }, y: { distr: chosen.isLog ? 3 : 1 } },
    axes: [{ size: 30 }, { size: 56, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) }],
    cursor: { drag: { x: true, y: false } }, legend: { live: true },
  }, data, figure);
  plot.root.querySelectorAll(".u-series").forEach((row, place) => {
    if (series[place].isEdge) row.remove();
  });
  plot.ctx.canvas.setAttribute("role", "img");
  plot.ctx.canvas.setAttribute("aria-label", `${numbers.name}: ${numbers.lines.map((line) => `${line.label} ends at ${number(line.values.findLast((value) => value !== null))}`).join("; ")}`.slice(0, 500));
  drawn.set(figure, { plot, numbers, seen: before ? before.seen : "" });
  figure.append(toolsOf(figure, numbers));
}

function toolsOf(figure, numbers) {
  const tools = document.createElement("div");
  tools.className = "tools";
  const picture = document.createElement("button");
  picture.type = "button";
  picture.textContent = "PNG";
  picture.addEventListener("click", () => keepPicture(figure, numbers));
  tools.append(picture);
  for (const kind of ["svg", "csv"]) {
    const link = document.createElement("a");
    link.href = addressOf(figure, kind);
    link.textContent = kind.toUpperCase();
    link.download = "";
    tools.append(link);
  }
  for (const one of tools.children) one.setAttribute("aria-label", `${numbers.name} as ${one.textContent}`);
  return tools;
}

function keepPicture(figure, numbers) {
  const { plot } = drawn.get(figure);
  const source = plot.ctx.canvas;
  const scale = devicePixelRatio || 1;
  const lines = numbers.lines.filter((line) => !line.single);
  const canvas = document.createElement("canvas");
  canvas.width = source.width;
  canvas.height = source.height + (34 + 18 * lines.length) * scale;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(source, 0, 28 * scale);
  pen.scale(scale, scale);
  pen.fillStyle = "#1c2430";
  pen.font = "600 14px system-ui, sans-serif";
  pen.fillText(numbers.name, 8, 19);
  pen.font = "12px system-ui, sans-serif";
  lines.forEach((line, place) => {
    const top = source.height / scale + 34 + 18 * place;
    pen.fillStyle = colourOf(line);
    pen.fillRect(8, top, 10, 10);
    pen.fillText(line.label, 24, top + 9);
  });
  canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${numbers.name.replace(/[^\w.@-]+/g, "-").slice(0, 80)}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

function addressOf(figure, kind) {
  return `${root}/series.${kind}?${figure.closest(".charts").dataset.runs}&${figure.dataset.source}`;
}

async function load(figure) {
  const answer = await fetch(addressOf(figure, "json"), { cache: "no-store" });
  if (!answer.ok) return;
  const text = await answer.text();
  const before = drawn.get(figure);
  if (before && before.seen === text) return;
  drawn.set(figure, { ...before, seen: text });
  draw(figure, JSON.parse(text));
}

// Charts are drawn when they come into view: a run may have hundreds of metrics.
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    load(entry.target).catch(() => {});
  }
}, { rootMargin: "300px" });

function watch(within) {
  for (const figure of within.querySelectorAll(".charts[data-runs] .chart[data-source]")) {
    if (figure.dataset.source) watcher.observe(figure);
  }
}

function drawAgain() {
  for (const [figure, { numbers }] of drawn) {
    if (numbers && figure.isConnected) draw(figure, numbers);
  }
}

function listen(id, kind, change) {
  const field = document.getElementById(id);
  if (field) field.addEventListener(kind, () => change(field));
}

listen("smoothing", "input", (field) => {
  chosen.smoothing = Number(field.value);
  field.nextElementSibling.value = chosen.smoothing < 2 ? "off" : `${chosen.smoothing} steps`;
  drawAgain();
});
listen("log-axis", "change", (field) => { chosen.isLog = field.checked; drawAgain(); });
listen("single-lines", "change", (field) => { chosen.hasSingle = field.checked; drawAgain(); });
listen("choose-all", "change", (field) => {
  for (const box of document.querySelectorAll('input[name="run"]')) box.checked = field.checked;
});
for (const part of document.querySelectorAll(".script-only")) part.hidden = false;

const search = document.querySelector("#find-metrics input[type=search]");
if (search) {
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const figure of document.querySelectorAll(".group .chart")) {
      const name = figure.querySelector(".name").textContent.toLowerCase();
      figure.hidden = !words.every((word) => name.includes(word));
    }
    for (const group of document.querySelectorAll(".group")) {
      group.hidden = !group.querySelector(".chart:not([hidden])");
    }
  });
}

const live = document.getElementById("live");

async function refresh() {
  const answer = await fetch(live.dataset.from, { cache: "no-store" });
  if (!answer.ok) return;
  const fresh = await answer.text();
  if (fresh === live.dataset.seen) return;
  live.dataset.seen = fresh;
  const page = new DOMParser().parseFromString(fresh, "text/html").body; // of our own server, which escapes all text of others
  const before = live.querySelector(".charts");
  const charts = page.querySelector(".charts");
  const isSame = before && charts && sources(before) === sources(charts);
  if (isSame) charts.replaceWith(before); // keep what is zoomed; its numbers are asked for below
  const controls = live.querySelector(".controls");
  const fields = page.querySelector(".controls");
  if (controls && fields) fields.replaceWith(controls);
  live.replaceChildren(...page.childNodes);
  if (!isSame) watch(live);
}

function sources(charts) {
  return [...charts.querySelectorAll(".chart")].map((figure) => figure.dataset.source).join(" ");
}

async function follow() {
  if (live && live.dataset.from) await refresh();
  for (const figure of document.querySelectorAll("[data-from] .chart, .charts[data-live] .chart")) {
    if (drawn.has(figure) && !figure.hidden) await load(figure);
  }
}

watch(document);
if (live && live.dataset.from || document.querySelector(".charts[data-live]")) {
  setInterval(() => {
    if (!document.hidden) follow().catch(() => {});
  }, EVERY_MS);
}
