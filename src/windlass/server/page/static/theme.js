// Runs before the first paint, so that a dark page never flashes white. A browser
// remembers theme, filters and the key of its sign-in; the service knows everything else.
(() => {
  let theme = "";
  try {
    theme = localStorage.getItem("windlass.theme") ?? "";
  } catch {
    // A browser may refuse storage: then the page follows the system.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
