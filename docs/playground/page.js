// Reads the controls, asks the engine in engine.js, and shows its answer. All words and numbers that
// depend on the settings come from the engine.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const numbers = ["requests", "per", "burst", "load", "seed"];
  const texts = ["shape", "retry"];
  const fields = [...numbers, ...texts];
  const frame = 2; // the borders of a picture, in pixels
  let view; // what the engine has answered last
  let drawn = ""; // the settings that it answered
  let later; // the timer of what is said and kept once the controls rest

  function fail(text) {
    $("problem").textContent = text;
    $("problem").hidden = false;
  }

  // settings returns what the controls say.
  function settings() {
    const s = {};
    for (const id of numbers) s[id] = Number($(id).value);
    for (const id of texts) s[id] = $(id).value;
    s.width = Math.min(1000, Math.max(240, pictureWidth()));
    return s;
  }

  // pictureWidth returns the room that a picture has in a column of the grid.
  function pictureWidth() {
    const columns = getComputedStyle($("pictures")).gridTemplateColumns.split(" ");
    return Math.floor(parseFloat(columns[0])) - frame;
  }

  function update() {
    for (const output of document.querySelectorAll("output")) {
      const input = $(output.htmlFor[0]);
      output.value = input.value + (input.dataset.unit || "");
      input.setAttribute("aria-valuetext", output.value);
    }
    const random = $("shape").value === "poisson";
    $("seeds").classList.toggle("off", !random);
    $("seed").disabled = !random;

    const asked = JSON.stringify(settings());
    if (asked !== drawn) {
      const answer = JSON.parse(globalThis.ratelimitEngine.run(asked));
      if (answer.error) {
        fail(answer.error);
        return;
      }
      answered(asked, answer);
    }
    $("problem").hidden = true;
  }

  function answered(asked, answer) {
    drawn = asked;
    view = answer;
    show();
    clearTimeout(later);
    later = setTimeout(rest, 600);
  }

  function show() {
    $("about").textContent = view.about;
    for (const e of document.querySelectorAll(".window")) e.textContent = view.window;
    const rows = document.createDocumentFragment();
    const strip = document.createDocumentFragment(); // for phones, on which the pictures are far below the sliders
    view.algorithms.forEach((a, i) => {
      const row = document.createElement("tr");
      const cell = (kind, value, room) => {
        const c = document.createElement(kind);
        c.textContent = value.toLocaleString("en-US");
        if (room) c.className = room;
        row.append(c);
        return c;
      };
      const name = cell("th", "");
      name.scope = "row";
      for (const word of a.name.split(/(?=[A-Z])/)) name.append(word, document.createElement("wbr"));
      cell("td", a.sent, "middle");
      for (const value of [a.granted, a.denied, a.wait]) cell("td", value);
      for (const value of [a.most, a.bound]) cell("td", value, "wide");
      rows.append(row);

      let figure = $("pictures").children[i];
      if (figure === $("file")) {
        figure = document.createElement("figure");
        $("file").before(figure);
      }
      const caption = document.createElement("figcaption");
      caption.textContent = a.worst;
      figure.innerHTML = a.svg; // the engine has escaped its texts
      figure.append(caption);

      const part = strip.appendChild(document.createElement("span"));
      part.append(a.short);
      part.appendChild(document.createElement("b")).textContent = a.granted.toLocaleString("en-US");
      part.appendChild(document.createElement("i")).style.setProperty("--share", (100 * a.granted) / a.sent + "%");

      if (!$("algorithm").options[i]) $("algorithm").add(new Option(a.name));
    });
    $("numbers").replaceChildren(rows);
    $("strip").replaceChildren(strip);
    showConfig();
  }

  function showConfig() {
    $("config").textContent = view.algorithms[$("algorithm").selectedIndex].config;
    $("copied").textContent = "";
  }

  // rest says what came out to those who do not see it, and keeps the settings in the address.
  function rest() {
    $("summary").textContent = view.about + " " + view.summary;
    const kept = fields.map((id) => id + "=" + encodeURIComponent($(id).value)).join("&");
    history.replaceState(null, "", "#" + kept);
  }

  // restore sets the controls to what the address says. A value that a control does not have is left out.
  function restore() {
    for (const [id, value] of new URLSearchParams(location.hash.slice(1))) {
      if (!fields.includes(id)) continue;
      const before = $(id).value;
      $(id).value = value;
      if ($(id).value !== value) $(id).value = before;
    }
  }

  async function copy() {
    const selected = document.createRange();
    selected.selectNodeContents($("config"));
    getSelection().removeAllRanges();
    getSelection().addRange(selected);
    try {
      await navigator.clipboard.writeText($("config").textContent);
      $("copied").textContent = "Copied.";
    } catch {
      $("copied").textContent = "Selected: copy it with the keyboard.";
    }
  }

  // once runs f in the next frame, however often it is asked for before.
  function once(f) {
    let waiting = false;
    return () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        try {
          f();
        } catch (err) {
          fail("The engine has failed: " + err.message + ". Load the page again.");
          throw err;
        }
      });
    };
  }

  globalThis.ratelimitReady = () => {
    const style = document.createElement("style");
    style.textContent = globalThis.ratelimitEngine.style;
    document.head.append(style);
    $("starting").hidden = true;
    $("view").hidden = false;
    $("strip").hidden = false;
    const updated = once(update);
    $("settings").addEventListener("input", updated);
    $("settings").addEventListener("submit", (e) => e.preventDefault());
    new ResizeObserver(updated).observe($("pictures"));
    addEventListener("hashchange", () => {
      restore();
      updated();
    });
    $("algorithm").addEventListener("input", showConfig);
    $("copy").addEventListener("click", copy);
    restore();
    update();
  };

  async function start() {
    if (!globalThis.ratelimitWasm) {
      throw new Error("engine.js is not there. Build it: go run ./cmd/ratelimit/internal/buildplayground");
    }
    const packed = Uint8Array.from(atob(globalThis.ratelimitWasm), (c) => c.charCodeAt(0));
    delete globalThis.ratelimitWasm;
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const go = new Go();
    const engine = await WebAssembly.instantiate(await new Response(unpacked).arrayBuffer(), go.importObject);
    go.run(engine.instance);
  }

  start().catch((err) => {
    $("starting").hidden = true;
    fail("The engine does not start: " + err.message);
  });
})();
