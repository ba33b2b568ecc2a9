// The page is a function of its address: a control changes the address, and the answer to it changes the page.
import { draw } from "./charts.js";
import { fill, morph, parsed } from "./morph.js";

const form = document.getElementById("state");
const main = document.getElementById("main");
const status = document.getElementById("status");
const message = document.getElementById("message");

const PAUSE = 250; // ms without another key before a typed number counts
const PATIENCE = 600; // ms that a newer request leaves an older one: else a slider that is dragged shows nothing

const AGAIN = 200; // ms until a page asks again that waits for a search

let current = main.dataset.query; // what the page shows
let asking = null; // ends the request under way
let waiting = null; // the request after it: the newest alone
let extra = new AbortController(); // ends the parts that take longer
const touched = new Set(); // controls that were changed since the last answer
let pushed = ""; // the control whose last change is the newest entry of the history

const busy = (is) => document.documentElement.toggleAttribute("data-busy", is); // asked for, or being drawn
const frame = () => new Promise((begins) => requestAnimationFrame(begins));
const painted = () => frame().then(() => new Promise((done) => setTimeout(done)));

// Requests

/** Options that may be empty although their default is not. */
const EMPTIED = ["where"];

/** Return the address that the controls say, after one of them was changed. */
function asked(changed) {
  const pairs = new URLSearchParams();
  const shown = new Set([...form.elements].filter((field) => field.type !== "hidden").map((field) => field.name.replace(/\.us$/, "")));
  for (const field of form.elements) {
    const switched = field.type === "checkbox" || field.type === "radio";
    if (field.type === "hidden" && shown.has(field.name)) continue; // the control says it
    if (field.disabled || !field.name || (switched && !field.checked)) continue;
    if (field.value === "" && !EMPTIED.includes(field.name)) continue;
    if (field.dataset.follows !== undefined && !touched.has(field.name)) continue;
    if (changed && field.name === changed.name && field !== changed && !switched) continue; // said at two places
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

/** Show a state: `query` is its address, or the control that was changed. */
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
        place(found, control); // what is known without the search
        waiting.entry = inherited(turn, waiting.entry);
        continue;
      }
      const shown = found.understood || !control || document.getElementById("part-message")?.closest("main"); // not kept
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

/** Return how a state enters the history in the place of one that was never shown. */
function inherited(dropped, entry) {
  return dropped?.entry === "push" && entry === "replace" ? "push" : entry;
}

/** Put an answer on the page, and its address into the history. */
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
  main.dataset.ms = (performance.now() - begun).toFixed(1); // until the numbers can be seen
}

/** Put what an answer has on the page; what is being typed or dragged stays, and what was changed since. */
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

// What people look at stays where it is, and the answer in sight

let held = null; // what was clicked, and where

function hold(element) {
  const places = [element.closest("dl > div, tr, li") ?? element, element.closest(".part")];
  held = places.filter(Boolean).map((place) => ({ place, top: place.getBoundingClientRect().top }));
}

/** Scroll as far as what was clicked has moved. */
function steady() {
  const one = held?.find(({ place }) => place.isConnected);
  const moved = one ? one.place.getBoundingClientRect().top - one.top : 0;
  if (Math.abs(moved) >= 1) scrollBy(0, moved);
}

let wanted = ""; // the place of the page that a link leads to, until it is there

/** Go to the place that is wanted, and stay there while other parts come. */
function reach() {
  const place = wanted && document.getElementById(wanted);
  if (!place) return;
  wanted = "";
  place.scrollIntoView({ block: "start" });
  held = [{ place, top: parseFloat(getComputedStyle(place).scrollMarginTop) }]; // once the page is long enough
  place.focus({ preventScroll: true });
}

for (const type of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(type, () => ((held = null), (wanted = "")), { passive: true, capture: true });

const answer = document.getElementById("answer");
const above = new IntersectionObserver(([{ isIntersecting, boundingClientRect: { top } }]) => (answer.hidden = isIntersecting || top > 0));

/** Say the answer at the foot of the window while its place is scrolled out of sight. */
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

/** Ask for the parts that take longer, one after the other, and draw. */
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

/** Write beside the values of controls what they would do, where a part tells that. */
function annotate(part) {
  const notes = JSON.parse(part.querySelector("[data-notes]")?.dataset.notes ?? "{}");
  for (const [name, values] of Object.entries(notes)) {
    for (const option of form.elements[name]?.options ?? []) {
      const note = option.selected ? "" : values[option.value];
      if (note) option.text = `${option.text.split(" \u00b7 ")[0]} \u00b7 ${note}`;
    }
  }
}

// What people do

let timer = 0;

function changed(event) {
  const { target, type } = event;
  if (!target.name || target.form !== form) return;
  if (type === "input" && !["range", "number", "search"].includes(target.type)) return; // once it is left or entered
  const [known, seen] = [target.asked === target.value, type === "change"];
  target.asked = seen ? undefined : target.value;
  if (known && seen) {
    const idle = !document.documentElement.hasAttribute("data-busy");
    if (target.value === "" && idle && !EMPTIED.includes(target.name)) target.value = target.defaultValue; // emptied: what counts without it
    return; // as it was typed
  }
  touched.add(target.name);
  const entry = type === "input" && pushed === target.name ? "replace" : "push"; // one entry for all of a drag
  pushed = type === "input" ? target.name : "";
  busy(true);
  clearTimeout(timer);
  if (event.inputType) timer = setTimeout(() => show(target, { history: entry }), PAUSE);
  else show(target, { history: entry });
}

/** A slider without a name sets the number beside it to one of its stops. */
function slid({ target, type }) {
  if (!target.dataset.sets) return;
  const number = document.getElementById(target.dataset.sets);
  number.value = JSON.parse(target.dataset.stops)[target.value];
  number.dispatchEvent(new Event(type, { bubbles: true }));
}

/** Offer names for the word that is being typed. */
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
    prompt("Copy this:", text); // a page from another machine may not write to the clipboard
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
    target.value = target.defaultValue; // as the page has it
    target.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

document.addEventListener("change", changed);
document.addEventListener("input", changed);
document.addEventListener("change", slid);
document.addEventListener("input", slid);
document.addEventListener("input", completed);
document.addEventListener("focusin", completed);
document.addEventListener("state", ({ detail }) => visit(detail)); // a point of a chart
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
  if (query === current) return; // a jump within the page
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
