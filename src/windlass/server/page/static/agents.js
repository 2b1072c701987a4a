/** Agents. */
import { h } from "./dom.js";
/** @param {string} name */
export function agentsView(name) { return h("h1", null, "Agents", name); }
