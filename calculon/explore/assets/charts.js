// Draws the charts of the page in its colors: visible charts first, one per animation frame.

const SETTINGS = {
  responsive: true,
  displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false, // fingers zoom themselves; there, the bar would stay on top of the chart
  displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "sendChartToCloud", "sendDataToCloud"],
  plotlyServerURL: "",  // plans never leave this machine
};

const plotly = new Promise((found) => {
  const look = () => found(window.Plotly);
  if (window.Plotly || document.readyState === "complete") look();
  document.getElementById("plotly").addEventListener("load", look);
  addEventListener("load", look); // even if the script is missing: tables show the same data
});

const frame = () => new Promise((begins) => requestAnimationFrame(begins));

let drawing = null;

/** Draw what has changed, or all charts; resolves once no chart is left to draw. */
export function draw(all = false) {
  if (all) for (const place of document.querySelectorAll(".chart")) place.drawn = undefined;
  drawing ??= drain().finally(() => (drawing = null));
  return drawing;
}

async function drain() {
  if (!next() || !(await plotly)) return;
  for (let place; (place = next()); ) {
    place.drawn = place.dataset.figure;
    await react(place, JSON.parse(place.drawn));
    await frame();
  }
}

function next() {
  const stale = [...document.querySelectorAll(".chart")].filter(
    (place) => place.drawn !== place.dataset.figure && place.offsetParent !== null, // null inside closed sections
  );
  return stale.find((place) => place.getBoundingClientRect().top < innerHeight) ?? stale[0];
}

async function react(place, { data, layout }) {
  const first = !place.on;
  await Plotly.react(place, data, themed(layout, place.clientWidth), SETTINGS);
  if (!first) return;
  place.on("plotly_click", ({ points: [point] }) => {
    const link = linked(point);
    if (link) place.dispatchEvent(new CustomEvent("state", { bubbles: true, detail: link }));
  });
  place.on("plotly_hover", ({ points: [point] }) => {
    place.classList.toggle("linked", Boolean(linked(point)));
    mark(point.customdata?.[1] || null, place);
  });
  place.on("plotly_unhover", () => {
    place.classList.remove("linked");
    mark(null, place);
  });
}

/** Return the address of the state that a point links to: its own, or the one of its row. */
function linked({ customdata, data }) {
  const own = [customdata].flat();
  return [...own, data.meta?.[own[0]]].find((one) => typeof one === "string" && one.startsWith("/?"));
}

// Keyboard: arrow keys move between points with an address, Enter follows it

/** Return the points of a chart with links, one per address. */
function stops(place) {
  const found = new Map();
  for (const [curve, trace] of (place.data ?? []).entries()) {
    for (const [i, customdata] of (trace.customdata ?? []).entries()) {
      const several = Array.isArray(customdata?.[0]) ? customdata.map((one, j) => [one, [i, j]]) : [[customdata, i]];
      for (const [told, pointNumber] of several) {
        const link = told && linked({ customdata: told, data: trace });
        if (link && !found.has(link)) found.set(link, { link, curveNumber: curve, pointNumber, text: told[2] ?? "" });
      }
    }
  }
  return [...found.values()];
}

const MOVES = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };

function keyed_to(event) {
  const place = event.target;
  if (!place.matches?.(".chart[tabindex]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const every = stops(place);
  const at = every.findIndex(({ link }) => link === place.dataset.stop);
  if (event.key in MOVES && every.length) {
    event.preventDefault();
    const next = at < 0 && MOVES[event.key] > 0 ? 0 : at + MOVES[event.key];
    const stop = every[Math.min(Math.max(next, 0), every.length - 1)];
    place.dataset.stop = stop.link;
    const { xaxis, yaxis } = place._fullData[stop.curveNumber];
    Plotly.Fx.hover(place, [{ curveNumber: stop.curveNumber, pointNumber: stop.pointNumber }], `${xaxis ?? "x"}${yaxis ?? "y"}`);
    document.getElementById("status").textContent = stop.text.replaceAll("<br>", ", ");
  } else if ((event.key === "Enter" || event.key === " ") && at >= 0) {
    event.preventDefault();
    place.dispatchEvent(new CustomEvent("state", { bubbles: true, detail: every[at].link }));
  }
}

document.addEventListener("keydown", keyed_to);
document.addEventListener("focusout", ({ target }) => {
  if (!target.dataset?.stop || !target.matches(".chart")) return;
  delete target.dataset.stop;
  Plotly.Fx.unhover(target);
});

// An item under the pointer is highlighted in all tables and charts: rows by data-key, points by a second customdata

let marked = null;
let marking = false; // highlighting a chart also fires its hover event

function mark(key, from) {
  if (marking || key === marked) return;
  [marked, marking] = [key, true];
  for (const one of document.querySelectorAll("[data-key]")) one.classList.toggle("marked", one.dataset.key === key);
  for (const place of document.querySelectorAll(".chart")) {
    if (place === from || !place.calcdata) continue;
    const points = key ? place.data.flatMap((trace, number) => keyed(trace, number, key)) : [];
    if (points.length) Plotly.Fx.hover(place, points.slice(0, 1));
    else Plotly.Fx.unhover(place);
  }
  marking = false;
}

function keyed({ customdata }, curveNumber, key) {
  const found = [];
  for (const [i, one] of (customdata ?? []).entries()) {
    if (one?.[1] === key) found.push({ curveNumber, pointNumber: i });
    else if (Array.isArray(one?.[0])) {
      for (const [j, cell] of one.entries()) if (cell?.[1] === key) found.push({ curveNumber, pointNumber: [i, j] });
    }
  }
  return found;
}

for (const type of ["mouseover", "focusin"]) {
  document.addEventListener(type, ({ target }) => {
    const named = target.closest("[data-key]") ?? target.closest("tr")?.querySelector("th [data-key]");
    if (!target.closest(".chart")) mark(named?.dataset.key ?? null, null);
  });
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout, width) {
  const [ink, quiet, rule] = [color("--ink"), color("--quiet"), color("--rule")];
  const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, automargin: true };
  const apart = { marker: { line: { color: color("--panel"), width: 1 } } }; // outlines separate the pieces of a bar
  const base = {
    template: { data: { bar: [apart] } },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: width < 500 ? 11 : 13 },
    margin: { l: 8, r: 16, t: 8, b: 40, ...layout.margin },
    modebar: { bgcolor: "transparent", color: quiet, activecolor: ink },
    hoverlabel: { bgcolor: color("--panel"), bordercolor: rule, font: { color: ink }, align: "left" },
  };
  const axes = Object.fromEntries(
    Object.keys({ xaxis: 0, yaxis: 0, ...layout })
      .filter((name) => /^[xy]axis\d*$/.test(name))
      .map((name) => [name, { ...axis, ...layout[name] }]),
  );
  const narrow = { ...layout.legend, x: 0, font: { size: 10 }, itemwidth: 30, maxheight: 0.9 };
  const legend = layout.legend && width < 500 ? { legend: narrow } : {};
  return { ...layout, ...base, ...axes, ...legend };
}

/** Save a chart as a file, in the size of the page and with an opaque background. */
async function download(place, format) {
  if (!(await plotly)) return;
  const { data, layout } = JSON.parse(place.dataset.figure);
  const drawn = { ...themed(layout, place.clientWidth), paper_bgcolor: color("--panel") };
  const name = [document.title.split(" - ")[0], place.closest(".part").id.replace("part-", "")].join(" ");
  const size = { width: place.clientWidth, height: place.clientHeight, scale: format === "png" ? 2 : 1 };
  await Plotly.downloadImage({ data, layout: drawn }, { format, filename: name.replace(/[^\w.+-]+/g, "-"), ...size });
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-picture]");
  if (button) download(button.closest(".part").querySelector(".chart"), button.dataset.picture);
});
addEventListener("toggle", () => draw(), true); // a section with charts was opened
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
let settling = 0;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => draw(true), 200); // the layout of legends depends on the width
});
