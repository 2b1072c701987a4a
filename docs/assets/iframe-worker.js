// The search of the theme runs in a Worker, and browsers start none for a page from the disk.
// There, a hidden frame takes its place: it loads the same script and passes the same messages.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><title>Search</title>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = loaded;
          script.onerror = failed;
          inside.document.head.append(script);
        });
      inside.importScripts = (...sources) =>
        sources.reduce((earlier, source) => earlier.then(() => load(source)), Promise.resolve());
      this.send = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
      load(new URL(url, location.href).href).then(() => {
        this.ready = true;
        this.waiting.forEach(this.send);
      });
    }

    postMessage(data) {
      if (this.ready) this.send(data);
      else this.waiting.push(data);
    }

    terminate() {}
  }
  // The script of the search looks for this name, to find its files.
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
