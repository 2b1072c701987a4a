/** The timeline of a session: lanes for model, tools, waiting and sub-agents, as SVG. */

import { h, svg } from "./dom.js";
import { now } from "./feed.js";
import { clockTime, duration, money } from "./format.js";
import { effect, onCleanup, signal } from "./signals.js";
import { costPlaces, findSpans, timeScale } from "./spans.js";
import { recall, remember } from "./ui.js";

/** @typedef {import("./spans.js").Span} Span */
/** @typedef {{ span: Span, x: number, width: number, count: number }} Bar */

const LANES = /** @type {const} */ (["model", "tools", "waiting", "agents"]);
const NAMES = { model: "Model", tools: "Tools", waiting: "Waiting", agents: "Agents" };
const ROW = 17;
const LEAST_PX = 3;
const ZOOM_MAX = 400;
const REDRAW_MS = 400;
const MANY_SPANS = 600;

/**
 * @param {import("./session_view.js").SessionView} view
 * @param {(seq: number) => void} choose
 */
export function timeline(view, choose) {
  const byCost = signal(recall("timeline") === "cost");
  const zoom = signal(1);
  const width = signal(0);
  const chosen = signal(-1);
  const frame = signal(0);
  /** @type {Span[]} */
  let spans = [];
  const drawing = svg("svg", { class: "timeline-svg", height: ROW * LANES.length, "aria-hidden": "true" });
  const said = h("span", { class: "visually-hidden", role: "status" });
  const scroller = h("div", { class: "timeline-scroll", tabindex: "0", role: "group", "aria-label": "Timeline: arrows choose, Enter opens the record, plus and minus zoom" }, drawing);
  const totals = h("div", { class: "timeline-totals num faint" });

  let lastDraw = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  effect(() => {
    view.version();
    view.head();
    // What is open grows with time; the rest is drawn anew only when it changes.
    if (spans.some((span) => span.to === null)) now();
    clearTimeout(waiting);
    waiting = setTimeout(() => frame.set(frame.peek() + 1), Math.max(0, (spans.length > MANY_SPANS ? 4 : 1) * REDRAW_MS - (Date.now() - lastDraw)));
  });
  onCleanup(() => clearTimeout(waiting));
  effect(() => {
    frame();
    const room = width() * zoom();
    if (!room) return;
    lastDraw = Date.now();
    spans = findSpans(view.entries, view.head.peek());
    draw(drawing, layOut(spans, byCost(), room, now.peek(), spans[chosen()] ?? null), room, spans[chosen()] ?? null);
    totals.textContent = describeTotals(spans, now.peek());
  });
  const observer = new ResizeObserver(() => width.set(scroller.clientWidth));
  observer.observe(scroller);
  onCleanup(() => observer.disconnect());

  /** @param {number} factor @param {number} at the place in the scroller that stays where it is */
  function zoomBy(factor, at) {
    const before = zoom.peek();
    const after = Math.min(ZOOM_MAX, Math.max(1, before * factor));
    const share = (scroller.scrollLeft + at) / (width.peek() * before);
    zoom.set(after);
    scroller.scrollLeft = share * width.peek() * after - at;
  }
  /** @param {number} step */
  function chooseNext(step) {
    if (!spans.length) return;
    const order = [...spans.keys()].sort((a, b) => (spans[a]?.from ?? 0) - (spans[b]?.from ?? 0));
    const at = order.indexOf(chosen.peek());
    const next = order[Math.min(order.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : order.length - 1) : at + step))] ?? 0;
    chosen.set(next);
    const span = spans[next];
    if (span) said.textContent = describeSpan(span, now.peek());
    drawing.querySelector(".chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  scroller.addEventListener("wheel", (event) => {
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    if (event.deltaY > 0 && zoom.peek() === 1) return;
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 300), event.clientX - scroller.getBoundingClientRect().left);
  }, { passive: false });
  scroller.addEventListener("keydown", (event) => {
    const middle = width.peek() / 2;
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": () => zoomBy(1.5, middle), "=": () => zoomBy(1.5, middle), "-": () => zoomBy(1 / 1.5, middle), 0: () => zoomBy(1e-9, 0),
      ArrowRight: () => chooseNext(1), ArrowLeft: () => chooseNext(-1), Home: () => { chosen.set(-1); chooseNext(1); }, End: () => { chosen.set(-1); chooseNext(-1); },
      Enter: () => { const span = spans[chosen.peek()]; if (span) choose(span.seq); },
    };
    const act = event.ctrlKey || event.metaKey ? undefined : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  drawing.addEventListener("click", (event) => {
    const seq = Number(/** @type {Element} */ (event.target).getAttribute("data-seq"));
    if (seq) choose(seq);
  });

  const toggle = (/** @type {boolean} */ isCost, /** @type {string} */ words) => h("button", {
    class: "tab small", "aria-pressed": () => String(byCost() === isCost),
    onclick: () => { byCost.set(isCost); remember("timeline", isCost ? "cost" : "time"); },
  }, words);
  return h("section", { class: "timeline panel", "aria-label": "Timeline" },
    h("div", { class: "timeline-names", "aria-hidden": "true" }, LANES.map((lane) => h("span", { class: `lane-name ${lane}` }, NAMES[lane]))),
    scroller,
    h("div", { class: "timeline-foot" }, totals, h("span", { class: "grow" }),
      h("span", { class: "faint only-wide", hidden: () => zoom() === 1 }, () => `${zoom().toFixed(1)}×`),
      h("button", { class: "small plain", "aria-label": "Zoom out", title: "Zoom out (-)", onclick: () => zoomBy(1 / 2, width.peek() / 2) }, "−"),
      h("button", { class: "small plain", "aria-label": "Zoom in", title: "Zoom in (+)", onclick: () => zoomBy(2, width.peek() / 2) }, "+"),
      h("span", { class: "tabs", role: "group", "aria-label": "Width of the timeline" }, toggle(false, "Time"), toggle(true, "Cost"))),
    said);
}

/** @param {Span[]} spans @param {boolean} byCost @param {number} room @param {number} at @param {Span | null} chosen @returns {Bar[]} */
function layOut(spans, byCost, room, at, chosen) {
  const costs = byCost ? costPlaces(spans) : null;
  const scale = byCost ? null : timeScale(spans, at);
  /** @type {Bar[]} */
  const bars = [];
  for (const lane of LANES) {
    /** @type {Bar | null} */
    let last = null;
    for (const span of spans) {
      if (span.lane !== lane) continue;
      const [from, to] = costs?.get(span) ?? [scale?.(span.from) ?? 0, scale?.(span.to ?? at) ?? 0];
      const x = Math.min(from * room, room - LEAST_PX);
      const width = Math.max(LEAST_PX, to * room - x - 0.5);
      // Bars that would cover each other are one bar: a long session has no more bars than pixels.
      if (last && span !== chosen && last.span !== chosen && x - (last.x + last.width) < 0.3 && width <= LEAST_PX && last.width < 40) {
        last.width = Math.max(last.width, x + width - last.x);
        last.count += 1;
        if (span.kind === "bad") last.span = span;
        continue;
      }
      last = { span, x, width, count: 1 };
      bars.push(last);
    }
  }
  return bars;
}

/** @param {SVGElement} drawing @param {Bar[]} bars @param {number} room @param {Span | null} chosen */
function draw(drawing, bars, room, chosen) {
  drawing.setAttribute("width", String(room));
  drawing.setAttribute("viewBox", `0 0 ${room} ${ROW * LANES.length}`);
  const lines = LANES.map((_, at) => svg("line", { x1: 0, x2: room, y1: at * ROW + ROW / 2, y2: at * ROW + ROW / 2, class: "lane-line" }));
  const rects = bars.map((bar) => {
    const words = bar.count > 1 ? `${bar.count} in a row, the first: ${describeSpan(bar.span, now.peek())}` : describeSpan(bar.span, now.peek());
    return svg("rect", {
      x: bar.x.toFixed(1), y: LANES.indexOf(bar.span.lane) * ROW + 3, width: bar.width.toFixed(1), height: ROW - 6, rx: 2,
      class: `span ${bar.span.lane} ${bar.span.kind}${bar.span === chosen ? " chosen" : ""}`, "data-seq": bar.span.seq,
    }, svg("title", null, words));
  });
  drawing.replaceChildren(...lines, ...rects);
}

/** @param {Span} span @param {number} at */
function describeSpan(span, at) {
  const cost = span.usd ? `, ${money(span.usd)}` : "";
  const failed = span.kind === "bad" ? ", failed" : span.to === null ? ", still open" : "";
  return `${NAMES[span.lane]}: ${span.words}, ${duration((span.to ?? at) - span.from)}${cost}${failed} (record ${span.seq}, ${clockTime(span.from)})`;
}

/** @param {Span[]} spans @param {number} at */
function describeTotals(spans, at) {
  const parts = LANES.map((lane) => {
    const mine = spans.filter((span) => span.lane === lane);
    if (!mine.length) return "";
    const seconds = mine.reduce((sum, span) => sum + (span.to ?? at) - span.from, 0);
    return `${NAMES[lane].toLowerCase()} ${duration(seconds)}`;
  });
  return parts.filter(Boolean).join("  ·  ");
}
