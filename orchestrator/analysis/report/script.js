"use strict";

// Plots in the colours of the page, again whenever the scheme or the medium changes.
const figures = JSON.parse(document.getElementById("figures").textContent);
const isDark = window.matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themed() {
  const ink = colour("--ink");
  const line = colour("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line };
  const update = { "font.color": ink, "legend.font.color": ink };
  for (const name of ["xaxis", "yaxis"]) {
    for (const [key, value] of Object.entries(axis)) update[`${name}.${key}`] = value;
  }
  return update;
}

const divs = [...document.querySelectorAll("[data-plot]")];
const drawn = divs.map((div) => {
  const figure = figures[div.dataset.plot];
  const config = { responsive: true, displaylogo: false };
  return Plotly.newPlot(div, figure.data, figure.layout, config).then(() => Plotly.relayout(div, themed()));
});
Promise.all(drawn).then(() => document.documentElement.setAttribute("data-drawn", String(drawn.length)));

function repaint() {
  for (const div of divs) Plotly.relayout(div, themed());
}
isDark.addEventListener("change", repaint);
for (const event of ["beforeprint", "afterprint"]) window.addEventListener(event, repaint);

// Copy the command.
const copy = document.getElementById("copy");
if (copy) {
  const text = document.getElementById("command").textContent;
  const copied = document.getElementById("copied");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page that is opened as a file may be refused the clipboard.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    copied.textContent = "Copied.";
  });
}

// Sort and filter the table of trials.
const table = document.getElementById("table");
const body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const shown = document.getElementById("shown");

function sortBy(column) {
  const head = heads[column];
  const isUp = head.getAttribute("aria-sort") !== "ascending";
  for (const other of heads) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
  const isNumeric = head.firstElementChild.dataset.numeric === "true";
  const sign = isUp ? 1 : -1;
  const keyed = [...body.rows].map((row) => [row.cells[column].textContent, row]);
  keyed.sort(([a], [b]) => {
    // Cells without a value come last either way.
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (isNumeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true }));
  });
  body.append(...keyed.map(([, row]) => row));
}
heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sortBy(column)));

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  let count = 0;
  for (const row of body.rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    count += row.hidden ? 0 : 1;
  }
  shown.textContent = wanted ? `${count} of ${body.rows.length} trials` : "";
});
