"use strict";
// Zoom, search and the width of the window. Names are read from the drawing's tooltips and written as text
// only, never as markup or code. Without this script the drawing is whole, 1000 pixels wide.
(() => {
  const svg = document.currentScript.closest("svg");
  const [title, subtitle, legend, frames, details] =
    ["title", "subtitle", "legend", "frames", "details"].map((id) => svg.querySelector("#" + id));
  const PAD = 10, CELL = +frames.dataset.cell, MIN_PIXELS = 0.2;
  const heading = title.textContent, note = details.textContent;
  const [whole, shown] = subtitle.children;
  const bars = [...frames.children].map((group) => {
    const [tip, rect, text] = group.children;
    const [name, figures] = tip.textContent.split("\n");
    const [at, ns] = [+group.dataset.at, +group.dataset.ns];
    return { group, rect, text, name, figures, at, ns, end: at + ns, y: +rect.getAttribute("y") };
  });
  const root = bars[0];
  let zoomed = root, width = 1000;

  function html(tag, attributes, parent) {
    const element = document.createElementNS("http://www.w3.org/1999/xhtml", tag);
    Object.assign(element, attributes);
    return parent.appendChild(element);
  }
  function child(tag, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    return svg.appendChild(element);
  }
  const found = child("text", { id: "found" });
  const box = child("foreignObject", { y: 8, width: 240, height: 28 });
  const controls = html("div", { id: "controls" }, box);
  const reset = html("button", { textContent: "Reset zoom", hidden: true }, controls);
  const field = html("input", { type: "search", placeholder: "Search (Ctrl+F)" }, controls);

  // As `fitted` in svg.rs.
  function fitted(text, pixels, cell = CELL) {
    const cells = (char) => (char.codePointAt(0) < 0x1100 ? 1 : 2);
    const most = Math.floor(pixels / cell);
    let used = 0, kept = "";
    for (const char of text) {
      used += cells(char);
      if (used > most) return most < 3 ? "" : kept + "…";
      if (used < most) kept += char;
    }
    return text;
  }
  const percent = (share) => (share === 1 ? "100%" : (share * 100).toFixed(1) + "%");

  function draw() {
    const inner = width - 2 * PAD, scale = inner / zoomed.ns;
    for (const bar of bars) {
      const start = Math.max(bar.at, zoomed.at), end = Math.min(bar.end, zoomed.end);
      const pixels = (end - start) * scale;
      const isBelow = bar.y > zoomed.y;
      bar.group.style.display = pixels < MIN_PIXELS ? "none" : "";
      if (pixels < MIN_PIXELS) continue;
      bar.group.classList.toggle("below", isBelow);
      bar.rect.setAttribute("x", (start - zoomed.at) * scale);
      bar.rect.setAttribute("width", pixels);
      bar.text.setAttribute("x", (start - zoomed.at) * scale);
      bar.text.textContent = fitted(bar.name, pixels - 6);
    }
    reset.hidden = zoomed === root;
  }

  // Puts everything at its place for the width of the window.
  function place() {
    width = Math.max(svg.clientWidth, 320);
    let x = PAD, y = 58;
    for (const item of legend.children) {
      if (x > PAD && x + +item.dataset.width > width - PAD) [x, y] = [PAD, y + 18];
      item.setAttribute("transform", `translate(${x} ${y})`);
      x += +item.dataset.width;
    }
    const bottom = y + 24 + +frames.getAttribute("height");
    frames.setAttribute("y", y + 24);
    frames.setAttribute("width", width - 2 * PAD);
    details.setAttribute("y", bottom + 18);
    svg.setAttribute("height", bottom + 28);
    box.setAttribute("x", width - PAD - 240);
    found.setAttribute("x", width - PAD);
    found.setAttribute("y", 46);
    title.textContent = fitted(heading, width - 2 * PAD - 250, 10);
    shown.textContent = fitted(whole.textContent, width - 2 * PAD - (found.textContent ? 170 : 0));
    details.textContent = fitted(note, width - 2 * PAD);
    draw();
  }

  // What is zoomed to and searched for stands in the address, so that a reload or a link shows the same.
  function remember() {
    const state = new URLSearchParams();
    if (zoomed !== root) state.set("zoom", bars.indexOf(zoomed));
    if (field.value) state.set("search", field.value);
    try { history.replaceState(null, "", "#" + state); } catch { /* Some pages may not. */ }
  }
  function zoom(bar) {
    zoomed = bar;
    draw();
    remember();
  }

  function search() {
    const wanted = field.value.toLowerCase();
    let pattern = null;
    try { pattern = new RegExp(field.value, "i"); } catch { /* Searched for as it is written. */ }
    let hits = 0, ns = 0, counted = -1;
    for (const bar of bars) {
      const hit = wanted && bar !== root && (bar.name.toLowerCase().includes(wanted) || pattern?.test(bar.name));
      bar.group.classList.toggle("hit", Boolean(hit));
      if (!hit) continue;
      hits += 1;
      // A bar above one that was found is part of its time.
      if (bar.at >= counted) [ns, counted] = [ns + bar.ns, bar.end];
    }
    frames.classList.toggle("searched", Boolean(wanted));
    found.textContent = wanted ? `${hits} found, ${percent(ns / root.ns)}` : "";
    place();
  }

  svg.removeAttribute("viewBox");
  svg.setAttribute("width", "100%");
  frames.classList.add("interactive");
  frames.addEventListener("click", (event) => {
    const bar = bars.find((bar) => bar.group.contains(event.target));
    if (bar) zoom(bar);
  });
  frames.addEventListener("mouseover", (event) => {
    const bar = bars.find((bar) => bar.group.contains(event.target));
    if (bar) details.textContent = fitted(`${bar.figures}: ${bar.name}`, width - 2 * PAD);
  });
  frames.addEventListener("mouseout", () => { details.textContent = fitted(note, width - 2 * PAD); });
  reset.addEventListener("click", () => zoom(root));
  field.addEventListener("input", () => { search(); remember(); });
  window.addEventListener("keydown", (event) => {
    if (event.key === "F3" || ((event.ctrlKey || event.metaKey) && event.key === "f")) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape") {
      field.value = "";
      search();
      zoom(root);
    }
  });
  window.addEventListener("resize", place);

  const state = new URLSearchParams(location.hash.slice(1));
  field.value = state.get("search") ?? "";
  zoomed = bars[state.get("zoom")] ?? root;
  search();
})();
