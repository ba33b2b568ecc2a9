// The page is a function of its address: a control changes the address, and the response updates the page.
import { draw } from "./charts.js";
import { fill, morph, parsed } from "./morph.js";

const form = document.getElementById("state");
const main = document.getElementById("main");
const status = document.getElementById("status");
const message = document.getElementById("message");

const PAUSE = 250; // ms without a further key before a typed number is sent
const PATIENCE = 600; // ms before a newer request aborts an older one: otherwise dragging a slider would show nothing

const AGAIN = 200; // ms between polls during a search

let current = main.dataset.query; // query of the page shown
let asking = null; // aborts the current request
let waiting = null; // the next request: only the newest is kept
let extra = new AbortController(); // aborts the slow parts
const touched = new Set(); // controls changed since the last response
let pushed = ""; // control whose last change made the newest history entry

const busy = (is) => document.documentElement.toggleAttribute("data-busy", is); // requesting or drawing
const frame = () => new Promise((begins) => requestAnimationFrame(begins));
const painted = () => frame().then(() => new Promise((done) => setTimeout(done)));

// Requests

/** Options that may be empty although their default is not. */
const EMPTIED = ["where"];

/** Return the query of the current controls, after one of them was changed. */
function asked(changed) {
  const pairs = new URLSearchParams();
  const shown = new Set([...form.elements].filter((field) => field.type !== "hidden").map((field) => field.name.replace(/\.us$/, "")));
  for (const field of form.elements) {
    const switched = field.type === "checkbox" || field.type === "radio";
    if (field.type === "hidden" && shown.has(field.name)) continue; // the visible control has the value
    if (field.disabled || !field.name || (switched && !field.checked)) continue;
    if (field.value === "" && !EMPTIED.includes(field.name)) continue;
    if (field.dataset.follows !== undefined && !touched.has(field.name)) continue;
    if (changed && field.name === changed.name && field !== changed && !switched) continue; // another control has the same name
    pairs.append(field.name, field.value);
  }
  if (changed) pairs.set("changed", changed.name);
  return pairs.toString();
}

async function fetched(address, signal) {
  const answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
  if (!answer.headers.get("Content-Type")?.startsWith("application/json")) throw new Error(await answer.text());
  return { understood: answer.ok, ...(await answer.json()) };
}

function told(error) {
  return error instanceof TypeError ? "No answer. Is calculon explore still running?" : `No answer: ${error.message}`;
}

/** Show a state: `query` is its query string, or the control that was changed. */
async function show(query, { begun = performance.now(), history: entry = "push", top = null, goal = "" } = {}) {
  waiting = { query, begun, entry: inherited(waiting, entry), top };
  wanted = goal;
  busy(true);
  extra.abort();
  if (asking) {
    const older = asking;
    setTimeout(() => older.abort(), PATIENCE);
    return;
  }
  while (waiting) {
    const turn = waiting;
    [waiting, asking] = [null, new AbortController()];
    main.setAttribute("aria-busy", "true");
    try {
      const control = typeof turn.query === "string" ? null : turn.query;
      const address = `/parts?${control ? asked(control) : turn.query}`;
      let found = await fetched(address, asking.signal);
      while (found.pending && !waiting) {
        place(found, control);
        status.textContent = document.querySelector("#part-searching h2")?.textContent ?? "";
        await new Promise((done) => setTimeout(done, AGAIN));
        found = await fetched(address, asking.signal);
      }
      if (found.pending) {
        place(found, control); // results that do not need the search
        waiting.entry = inherited(turn, waiting.entry);
        continue;
      }
      const shown = found.understood || !control || document.getElementById("part-message")?.closest("main"); // no valid page to keep
      if (shown) await put(found, turn);
      else control.setAttribute("aria-invalid", "true");
      fill(message, shown ? "" : found.main);
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = told(error);
      else if (waiting) waiting.entry = inherited(turn, waiting.entry);
    }
  }
  asking = null;
  main.removeAttribute("aria-busy");
  status.textContent = document.querySelector("[data-spoken]")?.dataset.spoken ?? "";
  await later(current);
}

/** Return how a state enters the history if it replaces one that was never shown. */
function inherited(dropped, entry) {
  return dropped?.entry === "push" && entry === "replace" ? "push" : entry;
}

/** Put a response on the page, and its address into the history. */
async function put(found, { query, begun, entry, top }) {
  const active = document.activeElement;
  if (!waiting) touched.clear();
  place(found, typeof query === "string" ? null : query);
  if (found.query !== current) {
    const address = `/?${found.query}`;
    if (entry === "push") {
      history.replaceState({ top: scrollY }, "");
      history.pushState(null, "", address);
    } else if (entry === "replace") history.replaceState(null, "", address);
    current = found.query;
  }
  refocus(active);
  if (top !== null) scrollTo(0, top);
  else steady();
  reach();
  await painted();
  main.dataset.ms = (performance.now() - begun).toFixed(1); // time until the numbers are visible
}

/** Put the contents of a response on the page; keep controls that are being edited or were changed since. */
function place({ controls, tabs, main: parts, title }, control) {
  const active = control || waiting ? document.activeElement : null;
  const said = (field) => field === control && field.value !== "";
  const kept = (field) => field === active || said(field) || (waiting && touched.has(field.name));
  if (controls !== null) fill(document.getElementById("controls"), controls, kept);
  fill(document.getElementById("views"), tabs);
  fill(main, parts, kept);
  document.title = title;
  summed();
}

// The clicked item stays in place, and the result in view

let held = null; // the clicked item and its position

function hold(element) {
  const places = [element.closest("dl > div, tr, li") ?? element, element.closest(".part")];
  held = places.filter(Boolean).map((place) => ({ place, top: place.getBoundingClientRect().top }));
}

/** Scroll by the distance that the clicked item has moved. */
function steady() {
  const one = held?.find(({ place }) => place.isConnected);
  const moved = one ? one.place.getBoundingClientRect().top - one.top : 0;
  if (Math.abs(moved) >= 1) scrollBy(0, moved);
}

let wanted = ""; // anchor of a link, until it is on the page

/** Scroll to the wanted anchor, and keep it in place while other parts arrive. */
function reach() {
  const place = wanted && document.getElementById(wanted);
  if (!place) return;
  wanted = "";
  place.scrollIntoView({ block: "start" });
  held = [{ place, top: parseFloat(getComputedStyle(place).scrollMarginTop) }]; // position once the page is long enough
  place.focus({ preventScroll: true });
}

for (const type of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(type, () => ((held = null), (wanted = "")), { passive: true, capture: true });

const answer = document.getElementById("answer");
const above = new IntersectionObserver(([{ isIntersecting, boundingClientRect: { top } }]) => (answer.hidden = isIntersecting || top > 0));

/** Show the result at the bottom of the window while its part is scrolled out of view. */
function summed() {
  above.disconnect();
  const told = main.querySelector("[data-spoken]");
  answer.textContent = told?.dataset.spoken ?? "";
  if (told) above.observe(told);
  else answer.hidden = true;
}

function refocus(before) {
  if (!before || before === document.body || before.isConnected) return;
  const again = before.id && document.getElementById(before.id);
  (again || main).focus({ preventScroll: true });
}

/** Request the slow parts one after the other, and draw. */
async function later(query) {
  extra.abort();
  extra = new AbortController();
  const { signal } = extra;
  draw();
  for (const place of main.querySelectorAll("[data-later]")) {
    const begun = performance.now();
    try {
      const found = await fetched(`/part/${place.dataset.later}?${query}`, signal);
      if (signal.aborted) return;
      const active = document.activeElement;
      if (found.html) morph(place, parsed(found.html).firstElementChild, (field) => field === active);
      else place.remove();
      place.dataset.filled = "";
      refocus(active);
      steady();
      reach();
      annotate(place);
    } catch (error) {
      if (error.name === "AbortError") return;
      place.removeAttribute("aria-busy");
      place.querySelector("p")?.replaceChildren(told(error));
    }
    place.dataset.ms = (performance.now() - begun).toFixed(1);
    draw();
  }
  await draw();
  if (!signal.aborted) busy(false);
}

/** Append the effects that a part reports to the options of controls. */
function annotate(part) {
  const notes = JSON.parse(part.querySelector("[data-notes]")?.dataset.notes ?? "{}");
  for (const [name, values] of Object.entries(notes)) {
    for (const option of form.elements[name]?.options ?? []) {
      const note = option.selected ? "" : values[option.value];
      if (note) option.text = `${option.text.split(" \u00b7 ")[0]} \u00b7 ${note}`;
    }
  }
}

// User input

let timer = 0;

function changed(event) {
  const { target, type } = event;
  if (!target.name || target.form !== form) return;
  if (type === "input" && !["range", "number", "search"].includes(target.type)) return; // wait for the change event
  const [known, seen] = [target.asked === target.value, type === "change"];
  target.asked = seen ? undefined : target.value;
  if (known && seen) {
    const idle = !document.documentElement.hasAttribute("data-busy");
    if (target.value === "" && idle && !EMPTIED.includes(target.name)) target.value = target.defaultValue; // emptied: show the default in use
    return; // already sent while typing
  }
  touched.add(target.name);
  const entry = type === "input" && pushed === target.name ? "replace" : "push"; // one history entry per drag
  pushed = type === "input" ? target.name : "";
  busy(true);
  clearTimeout(timer);
  if (event.inputType) timer = setTimeout(() => show(target, { history: entry }), PAUSE);
  else show(target, { history: entry });
}

/** A slider without a name sets its number input to one of its stops. */
function slid({ target, type }) {
  if (!target.dataset.sets) return;
  const number = document.getElementById(target.dataset.sets);
  number.value = JSON.parse(target.dataset.stops)[target.value];
  number.dispatchEvent(new Event(type, { bubbles: true }));
}

/** Offer completions for the word being typed. */
function completed({ target }) {
  const words = document.getElementById(target.dataset?.completes ?? "");
  if (!words) return;
  const begun = target.value.match(/[\w.]*$/)[0];
  const before = target.value.slice(0, target.value.length - begun.length);
  const fits = ({ value, label }) => `${value} ${label}`.toLowerCase().includes(begun.toLowerCase());
  const offered = [...words.options].filter(fits).map(({ value, label }) => {
    const option = new Option(label, before + value);
    option.label = label;
    return option;
  });
  target.list.replaceChildren(...offered);
}

function visit(address, begun = performance.now()) {
  const { search, hash } = new URL(address, location);
  const [query, goal] = [search.slice(1), hash.slice(1)];
  const view = (words) => new URLSearchParams(words).get("view");
  pushed = "";
  clearTimeout(timer);
  if (goal && query === current && !asking) {
    wanted = goal;
    reach();
  } else show(query, { begun, top: view(query) === view(current) ? null : 0, goal });
}

async function copy(button) {
  const text = button.dataset.copy || location.href;
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    status.textContent = "Copied";
  } catch {
    prompt("Copy this:", text); // only pages from this machine may write to the clipboard
  }
  setTimeout(() => (button.textContent = words), 1500);
}

function unfold(button, open = button.getAttribute("aria-expanded") !== "true") {
  button.setAttribute("aria-expanded", open);
  document.getElementById(button.getAttribute("aria-controls")).toggleAttribute("data-open", open);
}

function escaped({ target }) {
  const menu = target.closest("details.menu[open]") ?? document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (target.form === form && target.defaultValue !== undefined && target.value !== target.defaultValue) {
    target.value = target.defaultValue; // restore the value of the page
    target.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

document.addEventListener("change", changed);
document.addEventListener("input", changed);
document.addEventListener("change", slid);
document.addEventListener("input", slid);
document.addEventListener("input", completed);
document.addEventListener("focusin", completed);
document.addEventListener("state", ({ detail }) => visit(detail)); // a click on a point of a chart
document.addEventListener("keydown", (event) => event.key === "Escape" && escaped(event));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(asked(null));
});
document.addEventListener("click", (event) => {
  const { target } = event;
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
  const button = target.closest("button[data-copy]");
  if (button) copy(button);
  const fold = target.closest("button.fold");
  if (fold) unfold(fold);
  const link = target.closest("a[data-state]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
  event.preventDefault();
  if (main.contains(link)) hold(link);
  visit(link.href);
});
addEventListener("popstate", ({ state }) => {
  const query = location.search.slice(1);
  if (query === current) return; // only the anchor changed
  pushed = "";
  clearTimeout(timer);
  show(query, { history: "none", top: state?.top ?? 0 });
});
addEventListener("beforeprint", () => draw());

summed();
busy(true);
if (location.search.slice(1) !== current && current) history.replaceState(null, "", `/?${current}`);
if (document.getElementById("part-searching")) show(current, { history: "none" });
else later(current);
