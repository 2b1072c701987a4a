/**
 * The page key: the half of a sign-in that belongs to this origin.
 *
 * The other half is a cookie, which a browser sends to every port of the host. The key is kept where
 * only pages of this origin can read it, and sent in a header. So another server on this host, which
 * gets the cookie, can do nothing with it.
 */

/** Has the path of the service: several services may share one origin under different prefixes. */
const NAME = `windlass.page_key${new URL("..", import.meta.url).pathname.slice(0, -1)}`;
/** For a browser that refuses storage: it stays signed in until the page is closed. */
let unstored = "";

/** The key, also if another tab has signed in meanwhile; empty without one. */
export function pageKey() {
  try {
    return localStorage.getItem(NAME) ?? unstored;
  } catch {
    return unstored;
  }
}

/** @param {string} key */
export function keepPageKey(key) {
  unstored = key;
  try {
    localStorage.setItem(NAME, key);
  } catch {
    // It is still known to this page.
  }
}

/**
 * Call a function when another tab has signed in.
 * @param {() => void} act
 */
export function whenSignedInElsewhere(act) {
  addEventListener("storage", (event) => {
    if (event.key === NAME && event.newValue) act();
  });
}
