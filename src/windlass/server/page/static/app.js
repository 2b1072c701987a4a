/** The shell of the page: its bar, its views by address, and what the title says. */

import { post } from "./api.js";
import { h, icon, slot } from "./dom.js";
import { connection, hello, now, questions, reopenFeed, startFeed } from "./feed.js";
import { bindings, startKeys, useKeys } from "./keys.js";
import { startNotices } from "./notify.js";
import { keepPageKey } from "./page_key.js";
import { effect, ownScope, signal } from "./signals.js";
import { address, attempt, openDialog, switchTheme, toastArea } from "./ui.js";
import { agentsView } from "./agents.js";
import { compareView } from "./compare.js";
import { costsView } from "./costs.js";
import { evaluationsView } from "./evaluations.js";
import { fleetView } from "./fleet.js";
import { homeView } from "./home.js";
import { questionsView } from "./questions.js";
import { runView } from "./run.js";

/** @typedef {{ view: string, parts: string[] }} Route */

const route = signal(readRoute(), (a, b) => JSON.stringify(a) === JSON.stringify(b));

/** @returns {Route} */
function readRoute() {
  const [view = "", ...parts] = location.hash.replace(/^#\/?/, "").split("/");
  return { view, parts: parts.map(decodePart) };
}

/** @param {string} part */
function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {Route} at */
function buildView(at) {
  const [first = "", second = ""] = at.parts;
  switch (at.view) {
    case "": return homeView();
    case "run": return runView(first, Number(second) || 0);
    case "questions": return questionsView(first, second);
    case "compare": return compareView(first, second);
    case "costs": return costsView();
    case "fleet": return fleetView();
    case "agents": return agentsView(first);
    case "evaluations": return evaluationsView(first);
    default: return h("div", { class: "empty" }, h("h2", null, "There is no such view"), h("a", { href: "#/" }, "To the sessions"));
  }
}

/** @param {string} view */
function partOf(view) {
  return view === "run" || view === "compare" ? "" : view;
}

function bar() {
  const waiting = () => questions()?.length ?? 0;
  /** @param {string} view @param {string} name @param {string} words @param {...import("./dom.js").Child} more */
  const link = (view, name, words, ...more) =>
    h("a", { href: `#/${view}`, "aria-current": () => (partOf(route().view) === view ? "page" : null) }, icon(name), h("span", null, words), ...more);
  return h("header", { class: "bar" },
    h("a", { class: "brand", href: "#/" }, icon("brand"), "Windlass"),
    h("nav", { class: "nav", "aria-label": "Views" },
      link("", "list", "Sessions"),
      link("questions", "inbox", "Questions", () => waiting() > 0 && h("span", { class: "badge", "aria-label": `${waiting()} open` }, waiting())),
      link("costs", "coins", "Costs"),
      link("agents", "agent", "Agents"),
      link("evaluations", "check", "Evaluations"),
      () => hello()?.caller.roles.includes("admin") && link("fleet", "layers", "Fleet")),
    connectionState(),
    personMenu(),
    h("button", { class: "plain", "aria-label": "Switch between light and dark", title: "Light or dark", onclick: switchTheme }, icon("sun")),
    h("button", { class: "plain only-wide", "aria-label": "Keys", title: "Keys (?)", onclick: showHelp }, icon("help")));
}

function connectionState() {
  return h("div", { class: "connection", role: "status" }, () => {
    const { state, since } = connection();
    const seconds = Math.floor(Math.max(0, now() && Date.now() - since) / 1000);
    switch (state) {
      case "live": return [h("span", { class: "dot live" }), h("span", { class: "only-wide" }, "live")];
      case "connecting": return [h("span", { class: "dot work" }), "connecting"];
      case "signed-out": return [h("span", { class: "dot fail" }), "signed out"];
      case "lost": return [h("span", { class: "dot lost" }), `reconnecting${seconds > 2 ? `, ${seconds} s` : ""}`];
    }
  });
}

function showHelp() {
  openDialog("Keys", () => h("dl", { class: "keys" }, bindings.peek().flat().map((binding) => [
    h("dt", null, binding.key.split(", ").map((key, at) => [at ? " or " : "", h("kbd", null, key)])),
    h("dd", null, binding.words)])));
}

function signedOut() {
  const field = h("input", { type: "password", name: "token", autocomplete: "current-password", placeholder: "wl_…", required: true });
  return h("div", { class: "empty sign-in" }, h("h2", null, "Sign in"),
    h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void signInWith({ token: field.value.trim() }).then((isIn) => { if (isIn) reopenFeed(); }); } },
      h("label", { class: "field" }, "With your token", field), h("button", { class: "primary" }, "Sign in")),
    h("p", null, "Or open your invitation, or the link that ", h("code", null, "windlass serve"), " printed. The person who runs the service makes both:"),
    h("p", null, h("code", null, `windlass token invite NAME --address ${location.origin}`)),
    h("p", { class: "soft" }, "This tab then shows what its address names."));
}

function personMenu() {
  const name = () => hello()?.caller.person || hello()?.caller.name || "owner";
  return h("button", { class: "plain person", title: () => `Signed in as ${name()}`, onclick: () => openDialog("Signed in", (close) => h("div", null,
    h("p", null, "You are ", h("strong", null, name), "."),
    h("p", { class: "soft" }, () => describeRights()),
    h("div", { class: "actions" }, h("button", { onclick: close }, "Close"),
      h("button", { class: "danger", onclick: () => { close(); void attempt(() => post("/logout"), "You are signed out.").then(reopenFeed); } }, "Sign out")))) },
  icon("person"), h("span", { class: "only-wide" }, name));
}

function describeRights() {
  const caller = hello()?.caller;
  if (!caller) return "";
  if (caller.roles.includes("admin")) return "You may do everything.";
  const grants = caller.grants.map((grant) => `${grant.role} of ${grant.agents.includes("*") ? "all agents" : grant.agents.join(", ")}`);
  return [`Your own runs: ${caller.roles.join(", ")}.`, grants.length ? `Runs of others: ${grants.join("; ")}.` : ""].join(" ");
}

function start() {
  const main = h("main", { id: "main", tabindex: "-1" });
  const show = slot(main);
  const app = /** @type {HTMLElement} */ (document.getElementById("app"));
  app.replaceChildren(h("a", { class: "skip", href: "#main", onclick: (/** @type {Event} */ event) => { event.preventDefault(); main.focus(); } }, "To the content"), bar(), main, toastArea());
  useKeys([
    { key: "g s", words: "sessions", act: () => { location.hash = "#/"; } },
    { key: "g q", words: "questions", act: () => { location.hash = address("questions"); } },
    { key: "g c", words: "costs", act: () => { location.hash = address("costs"); } },
    { key: "g a", words: "agents", act: () => { location.hash = address("agents"); } },
    { key: "g e", words: "evaluations", act: () => { location.hash = address("evaluations"); } },
    { key: "g f", words: "fleet", act: () => { location.hash = address("fleet"); } },
    { key: "t", words: "light or dark", act: switchTheme },
    { key: "?", words: "these keys", act: showHelp },
  ]);
  addEventListener("hashchange", () => void followAddress());
  let shown = "";
  effect(() => {
    const at = route();
    const isOut = connection().state === "signed-out";
    // A record of the session that is shown already does not make the view anew.
    const key = isOut ? "out" : `${at.view}/${at.view === "run" ? at.parts[0] : at.parts.join("/")}`;
    if (key === shown) return;
    shown = key;
    main.className = ["run", "compare"].includes(at.view) ? "wide" : "";
    show(() => (isOut ? signedOut() : buildView(at)));
    if (document.activeElement === document.body || document.activeElement?.closest("#main")) main.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

/** Show what the address names, or sign in if it is a login link. */
async function followAddress() {
  const code = takeLoginCode();
  if (!code) route.set(readRoute());
  else if (await signInWith({ code })) reopenFeed();
}

/** Return the code of a login link, and forget it: it must not stay in the history. */
function takeLoginCode() {
  const code = /^#login=(.+)$/.exec(location.hash)?.[1] ?? "";
  if (code) {
    // A link that is opened in this tab leads back to what the tab showed.
    const { view, parts } = route.peek();
    history.replaceState(null, "", view.startsWith("login=") ? "#/" : address(view, ...parts));
    route.set(readRoute());
  }
  return code;
}

/** @param {{ code: string } | { token: string }} secret */
function signInWith(secret) {
  return attempt(async () => keepPageKey((await post("/login", secret)).page_key));
}

async function startSignedIn() {
  const code = takeLoginCode();
  if (code) await signInWith({ code });
  startFeed();
}

startKeys();
ownScope(start);
startNotices();
void startSignedIn();
