// Small parts of the page: elements, texts, lists whose nodes keep their keys.

const pageData = JSON.parse(document.getElementById("data").textContent);
export const token = pageData.token;
const things = pageData.things; // what can be explained: name -> {doc, section}

/** A text in the reader's language; {name} is replaced by fields.name. */
export function t(key, fields = {}) {
  const text = pageData.texts[key];
  if (text === undefined) throw new Error(`no text: ${key}`);
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole));
}

/** A text that may have no translation, as a name of the run. */
export function tOr(key, otherwise) {
  return pageData.texts[key] ?? otherwise;
}

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "circle", "path", "g", "text", "rect", "line", "title"]);

/** An element. `attrs`: attributes; a function is a listener, "class" the class, "text" its text. */
export function h(name, attrs = {}, ...children) {
  const node = SHAPES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attrs)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else if (key === "text") node.textContent = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Make the children of `parent` those of `items`: a node of a key stays, others come and go. Says whether any did. */
export function keep(parent, items, keyOf, make, update) {
  const had = (parent.kept ??= new Map());
  const left = new Set(had.keys());
  let changed = false;
  let place = null;
  items.forEach((item, number) => {
    const key = keyOf(item, number);
    left.delete(key);
    let node = had.get(key);
    if (!node) {
      had.set(key, (node = make(item)));
      changed = true;
    }
    const next = place ? place.nextSibling : parent.firstChild;
    if (next !== node) {
      parent.insertBefore(node, next);
      changed = true;
    }
    place = node;
    update?.(node, item, number);
  });
  for (const key of left) {
    had.get(key).remove();
    had.delete(key);
    changed = true;
  }
  return changed;
}

/** "30.1 s", as plans and stories write times. */
export function seconds(ms) {
  return `${(Math.round(ms / 100) / 10).toFixed(1)} s`;
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** The class of a member's colour; beyond eight the same colours come again, marked. */
export const colourClass = (number) => (number === undefined ? "none" : `o${number % 8}${number >= 8 ? " again" : ""}`);

/** What lasts on the link of two hosts, in either direction. */
export function linkOf(side, a, b) {
  return side.links.find((one) => (one.a === a && one.b === b) || (one.a === b && one.b === a));
}

/** A link to a page of the docs: "order.md#part" or "docs/order.md#part". */
export function docsLink(rule) {
  const address = rule.replace(/^docs\//, "");
  return h("a", { href: `/docs/${address}`, target: "_blank", text: `docs/${address.split("#")[0]}` });
}

/** A link to a section of an article: "1/2.2.1". */
export function articleLink(id) {
  const [article, ...section] = id.split("/");
  return h("a", { href: `/article/${id}`, target: "_blank", text: t("thing.section", { article, section: section.join("/") }) });
}

/** The sentence about a thing, and where more stands. */
export function explanation(name) {
  const thing = things[name];
  if (!thing) return [];
  const links = [docsLink(thing.doc)];
  if (thing.section) links.push(" ", articleLink(thing.section));
  return [h("span", { text: t(`thing.${name}`) }), h("span", { class: "links" }, ...links)];
}
