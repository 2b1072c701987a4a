/**
 * DOM nodes by function. Text becomes text nodes only: there is no way to give HTML to it.
 *
 * A child or a property that is a function is watched: it changes when a signal that it read does.
 */

import { effect, onCleanup, ownScope, signal, untracked } from "./signals.js";

/** @typedef {Node | string | number | null | undefined | false | Child[] | (() => Child)} Child */
/** @typedef {Record<string, any>} Props */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an element of HTML. `on…` properties are listeners, `class` may be a list with gaps.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  applyProps(element, props ?? {});
  append(element, children);
  return element;
}

/**
 * Return an element of SVG.
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  applyProps(element, props ?? {});
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Props} props
 */
function applyProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "ref") value(element);
    else if (typeof value === "function") effect(() => setProp(element, name, value()));
    else setProp(element, name, value);
  }
}

const LIVE_PROPERTIES = new Set(["value", "checked", "disabled", "open", "hidden", "indeterminate"]);
// Attributes that could load or run something are set by the code that checks their value.
const REFUSED = new Set(["srcdoc", "style", "innerhtml", "outerhtml"]);

/**
 * @param {Element} element
 * @param {string} name
 * @param {unknown} value
 */
export function setProp(element, name, value) {
  if (REFUSED.has(name.toLowerCase())) throw new Error(`the page does not set ${name}`);
  if (name === "class" && Array.isArray(value)) value = value.filter(Boolean).join(" ");
  if (name === "dataset") Object.assign(/** @type {HTMLElement} */ (element).dataset, value);
  else if (LIVE_PROPERTIES.has(name)) /** @type {any} */ (element)[name] = value ?? "";
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * @param {Node} parent
 * @param {Child} child
 */
export function append(parent, child) {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const one of child) append(parent, one);
  else if (typeof child === "function") appendWatched(parent, child);
  else if (child instanceof Node) parent.appendChild(child);
  else parent.appendChild(document.createTextNode(String(child)));
}

/**
 * Append what a function returns, and replace it whenever it returns something else.
 * @param {Node} parent
 * @param {() => Child} compute
 */
function appendWatched(parent, compute) {
  const anchor = document.createComment("");
  parent.appendChild(anchor);
  /** @type {ChildNode[]} */
  let shown = [];
  effect(() => {
    const child = compute();
    const text = typeof child === "string" || typeof child === "number" ? String(child) : null;
    if (text !== null && shown.length === 1 && shown[0] instanceof Text) {
      if (shown[0].data !== text) shown[0].data = text;
      return;
    }
    const fragment = document.createDocumentFragment();
    append(fragment, child);
    const next = /** @type {ChildNode[]} */ ([...fragment.childNodes]);
    for (const node of shown) node.remove();
    anchor.parentNode?.insertBefore(fragment, anchor);
    shown = next;
  });
}

/**
 * Append rows for the items of a list. A row is made once for each key, and then only moved.
 *
 * `render` gets the item as a signal: what it reads from it is updated in place.
 * @template T
 * @param {HTMLElement} parent
 * @param {() => readonly T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: import("./signals.js").Signal<T>) => HTMLElement} render
 * @returns {HTMLElement}
 */
export function keyedList(parent, items, keyOf, render) {
  /** @type {Map<string, { item: import("./signals.js").Signal<T>, node: HTMLElement, end: () => void }>} */
  let rows = new Map();
  effect(() => {
    const now = items();
    untracked(() => {
      /** @type {typeof rows} */
      const next = new Map();
      /** @type {ChildNode | null} */
      let place = parent.firstChild;
      for (const item of now) {
        const key = keyOf(item);
        let row = rows.get(key);
        if (row) row.item.set(item);
        else {
          const value = signal(item);
          const [node, end] = ownScope(() => render(value));
          row = { item: value, node, end };
        }
        rows.delete(key);
        next.set(key, row);
        if (row.node === place) place = place.nextSibling;
        else parent.insertBefore(row.node, place);
      }
      for (const row of rows.values()) {
        row.end();
        row.node.remove();
      }
      rows = next;
    });
  });
  onCleanup(() => {
    for (const row of rows.values()) row.end();
  });
  return parent;
}

/**
 * Show one node at a time in a parent; the effects of the one before end with it.
 * @param {HTMLElement} parent
 * @returns {(build: () => Child) => void}
 */
export function slot(parent) {
  /** @type {() => void} */
  let endLast = () => {};
  onCleanup(() => endLast());
  return (build) => {
    endLast();
    parent.replaceChildren();
    // What it appends belongs to the new scope too, and ends with it.
    const [, end] = ownScope(() => append(parent, build()));
    endLast = end;
  };
}

/**
 * A picture from a symbol of the page's own sheet of icons.
 * @param {string} name
 * @param {string} [label] what a screen reader says; without one the icon is decoration
 */
export function icon(name, label) {
  const props = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", ...props }, svg("use", { href: `#i-${name}` }));
}
