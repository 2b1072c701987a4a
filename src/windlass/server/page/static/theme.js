// Runs before the first paint, so that a dark page never flashes white. Theme and filters are all
// that a browser remembers; everything else is known to the service.
(() => {
  let theme = "";
  try {
    theme = localStorage.getItem("windlass.theme") ?? "";
  } catch {
    // A browser may refuse storage: then the page follows the system.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
