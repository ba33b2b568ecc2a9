// Updates a part of the page to match fresh HTML while preserving focus, values being dragged or typed,
// opened sections, and charts.

/** Parse HTML into a fragment. */
export function parsed(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text;
  return holder.content;
}

/** Make the contents of an element match HTML; controls that are `kept` keep their values. */
export function fill(place, text, kept = () => false) {
  children(place, parsed(text), kept);
}

/** Make an element match a fresh one of its kind. */
export function morph(old, fresh, kept = () => false) {
  const filled = old.dataset.later === undefined || old.dataset.filled !== undefined;
  if (fresh.dataset.later !== undefined && filled) {
    old.dataset.later = fresh.dataset.later; // keep the old contents until the new ones arrive
    old.setAttribute("aria-busy", "true");
    return;
  }
  const chart = old.classList.contains("chart");
  attributes(old, fresh, chart);
  if (chart) return; // Plotly owns the contents
  const wanted = (kept(old) ? old : fresh).value; // read before options move
  children(old, fresh, kept);
  if (old.matches("input, select, textarea, output") && old.value !== wanted) old.value = wanted;
  if (kept(old)) return;
  if ("checked" in old && old.checked !== fresh.checked) old.checked = fresh.checked;
}

function attributes(old, fresh, chart) {
  const own = (name) => (chart && ["class", "data-stop"].includes(name)) || (name === "open" && old.tagName === "DETAILS");
  for (const { name } of [...old.attributes]) {
    if (!own(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

const alike = (one, other) => one.nodeName === other.nodeName && (one.id ?? "") === (other.id ?? "");

function children(old, fresh, kept) {
  const wanted = new Set([...fresh.children].map((one) => one.id));
  for (const one of [...old.children]) if (one.id && !wanted.has(one.id)) one.remove();
  const named = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const one of [...fresh.childNodes]) {
    const match = one.id ? named.get(one.id) : at;
    if (!match || !alike(match, one)) {
      old.insertBefore(one, at);
      continue;
    }
    while (at && at !== match && !at.id) at = removed(at); // moving a node would remove the focus
    if (at === match) at = at.nextSibling;
    else old.insertBefore(match, at);
    if (match.nodeType === Node.ELEMENT_NODE) morph(match, one, kept);
    else if (match.data !== one.data) match.data = one.data;
  }
  while (at) at = removed(at);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}
