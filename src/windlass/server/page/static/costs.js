/** Budgets and costs. */
import { h } from "./dom.js";
export function costsView() { return h("h1", null, "Costs"); }
