/**
 * Values that can be watched, and functions that run again when a value they read has changed.
 *
 * The law: an effect runs at most once for each batch of changes, and never after its owner is gone.
 */

/** @typedef {{ run: () => void, sources: Set<Set<Watcher>>, depth: number }} Watcher */
/** @template T @typedef {{ (): T, set: (value: T) => void, peek: () => T }} Signal */
/** @typedef {{ cleanups: (() => void)[] }} Scope */

/** @type {Watcher | null} */
let activeWatcher = null;
/** @type {Scope | null} */
let activeScope = null;
/** @type {Set<Watcher>} */
const pendingWatchers = new Set();
let batchDepth = 0;

/**
 * Return a value that can be watched. Calling it reads it.
 * @template T
 * @param {T} value
 * @param {(a: T, b: T) => boolean} [isSame]
 * @returns {Signal<T>}
 */
export function signal(value, isSame = Object.is) {
  /** @type {Set<Watcher>} */
  const watchers = new Set();
  const read = () => {
    if (activeWatcher) {
      watchers.add(activeWatcher);
      activeWatcher.sources.add(watchers);
    }
    return value;
  };
  read.peek = () => value;
  /** @param {T} next */
  read.set = (next) => {
    if (isSame(value, next)) return;
    value = next;
    for (const watcher of watchers) pendingWatchers.add(watcher);
    if (batchDepth === 0) runPending();
  };
  return read;
}

/**
 * Make several changes and run each effect once.
 * @param {() => void} change
 */
export function batch(change) {
  batchDepth += 1;
  try {
    change();
  } finally {
    batchDepth -= 1;
    if (batchDepth === 0) runPending();
  }
}

function runPending() {
  // An effect may change further values. A thousand rounds mean that two effects chase each other.
  for (let round = 0; pendingWatchers.size > 0; round += 1) {
    if (round > 1000) throw new Error("effects change what they read");
    const watchers = [...pendingWatchers].sort((a, b) => a.depth - b.depth);
    pendingWatchers.clear();
    batchDepth += 1;
    try {
      for (const watcher of watchers) watcher.run();
    } finally {
      batchDepth -= 1;
    }
  }
}

/**
 * Run a function now, and again whenever a value that it read has changed.
 *
 * What it registers with `onCleanup` is done before it runs again, and when its scope ends.
 * @param {() => void} action
 * @returns {() => void} ends the effect
 */
export function effect(action) {
  /** @type {Scope} */
  const scope = { cleanups: [] };
  let isOver = false;
  /** @type {Watcher} */
  const watcher = { run, sources: new Set(), depth: (activeWatcher?.depth ?? 0) + 1 };

  function run() {
    if (isOver) return;
    release();
    const outerWatcher = activeWatcher;
    const outerScope = activeScope;
    activeWatcher = watcher;
    activeScope = scope;
    try {
      action();
    } finally {
      activeWatcher = outerWatcher;
      activeScope = outerScope;
    }
  }
  function release() {
    for (const watchers of watcher.sources) watchers.delete(watcher);
    watcher.sources.clear();
    endScope(scope);
  }
  function end() {
    isOver = true;
    pendingWatchers.delete(watcher);
    release();
  }
  onCleanup(end);
  run();
  return end;
}

/**
 * Return a value that is computed from others.
 * @template T
 * @param {() => T} compute
 * @param {(a: T, b: T) => boolean} [isSame]
 * @returns {() => T}
 */
export function computed(compute, isSame = Object.is) {
  const result = signal(/** @type {T} */ (undefined), isSame);
  effect(() => result.set(compute()));
  return result;
}

/**
 * Do something when the scope that is active now ends.
 * @param {() => void} cleanup
 */
export function onCleanup(cleanup) {
  activeScope?.cleanups.push(cleanup);
}

/**
 * Run a function whose effects live until the returned function is called.
 * @template T
 * @param {() => T} build
 * @returns {[T, () => void]}
 */
export function ownScope(build) {
  /** @type {Scope} */
  const scope = { cleanups: [] };
  const outerWatcher = activeWatcher;
  const outerScope = activeScope;
  activeWatcher = null;
  activeScope = scope;
  try {
    return [build(), () => endScope(scope)];
  } finally {
    activeWatcher = outerWatcher;
    activeScope = outerScope;
  }
}

/** @param {Scope} scope */
function endScope(scope) {
  const cleanups = scope.cleanups.splice(0);
  for (const cleanup of cleanups.reverse()) cleanup();
}

/**
 * Read values without watching them.
 * @template T
 * @param {() => T} read
 * @returns {T}
 */
export function untracked(read) {
  const outer = activeWatcher;
  activeWatcher = null;
  try {
    return read();
  } finally {
    activeWatcher = outer;
  }
}
