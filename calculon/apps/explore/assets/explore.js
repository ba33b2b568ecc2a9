"use strict";
// The page is a function of its address: a control changes the address, and the answer to it changes the page.

const form = document.getElementById("state");
const main = document.getElementById("main");
const status = document.getElementById("status");
let running = null; // the request under way: a newer one ends it

const wait = 30; // ms without another key before a text counts
const again = 200; // ms until a page asks again that waits for a search

// While something is asked for or drawn, the page says so
const busy = (is) => document.documentElement.toggleAttribute("data-busy", is);
busy(true);

// Addresses

function asked(changed) {
  const pairs = new URLSearchParams();
  for (const field of form.elements) {
    const off = field.disabled || !field.name || (field.type === "checkbox" && !field.checked);
    if (off || (field.type === "radio" && !field.checked)) continue;
    if (field.dataset.follows !== undefined && field.name !== changed) continue;
    if (field.value !== "") pairs.append(field.name, field.value);
  }
  if (changed) pairs.set("changed", changed);
  return pairs.toString();
}

async function fetched(address, signal) {
  const answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
  if (!answer.headers.get("Content-Type")?.startsWith("application/json")) throw new Error(await answer.text());
  return answer.json();
}

function put(found) {
  if (found.controls !== null) fill(form, found.controls); // those of an address that means nothing stay
  fill(document.getElementById("views"), found.tabs);
  fill(main, found.main);
  document.title = found.title;
}

async function show(query, { push = true, begun = performance.now() } = {}) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  busy(true);
  main.setAttribute("aria-busy", "true");
  try {
    let found = await fetched(`/parts?${query}`, signal);
    put(found);
    while (found.pending) {
      await new Promise((done) => setTimeout(done, again));
      found = await fetched(`/parts?${query}`, signal);
      put(found);
    }
    const address = `/?${found.query}`;
    if (push && address !== location.pathname + location.search) history.pushState(null, "", address);
    main.dataset.ms = (performance.now() - begun).toFixed(1); // until the numbers stand on the page
    draw();
    later(found.query, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    status.textContent = `No answer: ${error.message}`;
    busy(false);
    return;
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
  status.textContent = document.querySelector("[data-spoken]")?.dataset.spoken ?? "";
}

// Parts that take longer, one after the other

async function later(query, signal) {
  for (const place of main.querySelectorAll("[data-later]")) {
    const begun = performance.now();
    try {
      const found = await fetched(`/part/${place.dataset.later}?${query}`, signal);
      if (signal.aborted) return;
      if (!found.html) place.remove();
      else morphed(place, parsed(found.html).firstElementChild);
      place.dataset.ms = (performance.now() - begun).toFixed(1);
      draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      place.textContent = `No answer: ${error.message}`;
    }
  }
  requestAnimationFrame(() => signal.aborted || busy(false));
}

// Morphing keeps what has the focus, what is being dragged, and charts that only change

function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text;
  return holder.content;
}

function fill(place, text) {
  children(place, parsed(text));
}

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? `${node.tagName}#${node.id}` : `${node.nodeType}`;
}

function morphed(old, fresh) {
  const chart = old.classList.contains("chart");
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(chart && name === "class")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (chart && (name === "class" || name === "style")) continue;
    if (name === "open" && old.tagName === "DETAILS") continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.tagName === "DETAILS" && old.dataset.open === undefined && fresh.open) old.open = true;
  if (chart) return; // what is inside is Plotly's
  if ("value" in old && old.tagName !== "LI" && old.value !== fresh.value && document.activeElement !== old) old.value = fresh.value;
  if ("checked" in old && old.checked !== fresh.checked) old.checked = fresh.checked;
  children(old, fresh);
  if (old.tagName === "SELECT" && old.value !== fresh.value) old.value = fresh.value;
}

function children(old, fresh) {
  const named = new Map([...old.children].filter((one) => one.id).map((one) => [key(one), one]));
  let at = old.firstChild;
  for (const one of [...fresh.childNodes]) {
    let match = one.id && named.get(key(one));
    if (!match && at && key(at) === key(one) && !at.id) match = at;
    if (!match) {
      old.insertBefore(one, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    if (match.nodeType === Node.ELEMENT_NODE) morphed(match, one);
    else if (match.data !== one.data) match.data = one.data;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// Charts

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout) {
  const ink = colour("--ink");
  const axis = { gridcolor: colour("--rule"), linecolor: colour("--rule"), zerolinecolor: colour("--rule") };
  const base = {
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 13 },
    margin: { l: 8, r: 16, t: 8, b: 40, ...layout.margin },
    hoverlabel: { bgcolor: colour("--panel"), font: { color: ink } },
  };
  const axes = Object.fromEntries(
    Object.keys({ xaxis: 0, yaxis: 0, ...layout })
      .filter((name) => /^[xy]axis\d*$/.test(name))
      .map((name) => [name, { ...axis, ...layout[name] }]),
  );
  return { ...layout, ...base, ...axes };
}

function draw(all = false) {
  if (!window.Plotly) return;
  for (const place of document.querySelectorAll(".chart")) {
    const text = place.dataset.figure;
    if (!all && place.drawn === text) continue;
    const first = place.drawn === undefined;
    place.drawn = text;
    const { data, layout } = JSON.parse(text);
    const settings = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    requestAnimationFrame(() => {
      Plotly.react(place, data, themed(layout), settings).then(() => {
        if (!first) return;
        place.on("plotly_click", ({ points: [point] }) => {
          const link = [point.customdata].flat().find((one) => typeof one === "string" && one.startsWith("/?"));
          if (link) show(link.slice(2));
        });
      });
    });
  }
}

// What people do

let timer = 0;

function changed(event) {
  const { target } = event;
  if (!target.name || target.form !== form) return;
  const begun = performance.now();
  const soon = event.type === "input" && target.type !== "range";
  clearTimeout(timer);
  if (soon && target.type === "text") return; // counts once it is left, or entered
  if (event.type === "change" && target.asked === target.value) return; // as it was typed
  target.asked = target.value;
  busy(true);
  timer = setTimeout(() => show(asked(target.name), { begun }), soon ? wait : 0);
}

document.addEventListener("change", changed);
document.addEventListener("input", (event) => {
  if (event.target.type === "range" || event.target.type === "number") changed(event);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(asked(document.activeElement?.form === form ? document.activeElement.name : ""));
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-state]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  show(new URL(link.href).search.slice(1));
});
addEventListener("popstate", () => show(location.search.slice(1), { push: false }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));

draw();
running = new AbortController();
if (document.getElementById("part-searching")) show(location.search.slice(1), { push: false });
else later(location.search.slice(1), running.signal);
