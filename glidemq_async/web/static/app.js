// The pages work without this script. It keeps them current over one event stream, shows forms of changes in a dialog,
// and adds keyboard shortcuts. No markup is built from text, so the content policy forbids every HTML sink.
"use strict";
(() => {
  const body = document.body;
  const root = body.dataset.root.replace(/\/$/, "");
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // The browser parses the page of a request itself (responseType "document"): scripts in it do not run.
  const load = (address, refreshes = false) => new Promise((done, refused) => {
    const request = new XMLHttpRequest();
    request.open("GET", address);
    if (refreshes) request.setRequestHeader("X-Refresh", "1");
    request.responseType = "document";
    request.timeout = 15000;
    request.onload = () => (request.status < 400 && request.response ? done(request.response) : refused(request.status));
    request.onerror = request.ontimeout = () => refused(0);
    request.send();
  });

  // --- Live pages: a message says that something changed, then the live parts of the page are replaced.
  const live = { paused: false, state: "live", busy: false, last: 0, errors: 0, source: null, timer: 0, poll: 0, pace: 2 };
  const badge = make("button", { type: "button", class: "live", id: "live", title: "Pause updates (p)" }, make("i"), make("span"));
  const texts = { live: "Live", paused: "Paused", polling: "Polling every 5 s", lost: "Connection lost" };
  const show = (state) => {
    live.state = state;
    const shown = live.paused ? "paused" : state;
    badge.dataset.state = shown;
    badge.lastChild.textContent = texts[shown];
    badge.setAttribute("aria-pressed", String(live.paused));
  };
  const engaged = () => $("dialog[open]") || document.hidden || live.paused;

  const replace = (fresh) => {
    for (const old of all("[data-live]")) {
      const next = fresh.getElementById(old.id);
      if (!next || old.contains(document.activeElement) && document.activeElement !== document.body) continue;
      if (String(document.getSelection()) && old.contains(document.getSelection().anchorNode)) continue;
      const open = all("details", old).map((each) => each.open);
      const made = document.importNode(next, true);
      all("details", made).forEach((each, place) => { if (open[place]) each.open = true; });
      if (made.isEqualNode(old)) continue;
      old.replaceWith(made);
    }
    const minutes = fresh.getElementById("minutes");
    if (minutes && $("#minutes")) { $("#minutes tbody").replaceWith(document.importNode($("tbody", minutes), true)); plot(); }
  };
  const refresh = async () => {
    if (live.busy || engaged()) return;
    live.busy = true;
    live.last = Date.now();
    try { replace(await load(location.href, true)); if (live.state === "lost") show(live.source ? "live" : "polling"); }
    catch { show("lost"); }
    live.busy = false;
  };
  const soon = () => {
    if (live.timer) return;
    live.timer = setTimeout(() => { live.timer = 0; refresh(); }, Math.max(0, live.last + live.pace * 1000 - Date.now()));
  };
  const poll = () => {
    if (live.source) { live.source.close(); live.source = null; }
    show("polling");
    if (!live.poll) live.poll = setInterval(refresh, 5000);
  };
  const numbers = (text) => {
    let told;
    try { told = JSON.parse(text); } catch { return; }
    const found = (told && told.document) || {};
    live.pace = found.pace || 2;
    for (const spot of all("[data-v]")) {
      const value = spot.dataset.v.split(".").reduce((from, name) => (from == null ? from : from[name]), found);
      if (typeof value === "number") spot.textContent = Math.round(value).toLocaleString("en");
    }
  };
  const listen = () => {
    const topics = body.dataset.topics;
    if (!topics || !all("[data-live]").length) return;
    const spot = $("[data-badge]") || $(".head");
    if (spot) spot.append(badge);
    badge.addEventListener("click", pause);
    show("live");
    if (!window.EventSource || !body.dataset.events) { poll(); return; }
    connect(topics);
  };
  const connect = (topics) => {
    const source = live.source = new EventSource(`${body.dataset.events}?topics=${encodeURIComponent(topics)}`);
    const heard = (message) => { live.errors = 0; if (live.state !== "live") show("live"); if (!live.paused) { numbers(message.data); soon(); } };
    source.onmessage = heard;
    for (const kind of ["snapshot", "update", "change"]) source.addEventListener(kind, heard);
    source.onopen = () => { live.errors = 0; show("live"); };
    source.onerror = () => { live.errors += 1; if (live.errors >= 3 || source.readyState === 2) poll(); };
  };
  const pause = () => { live.paused = !live.paused; show(live.state); if (!live.paused) refresh(); };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      live.hide = setTimeout(() => { if (live.source) { live.source.close(); live.source = null; live.away = true; } }, 30000);
    } else {
      clearTimeout(live.hide);
      if (live.away) { live.away = false; connect(body.dataset.topics); }
      if (body.dataset.topics) refresh();
    }
  });

  // --- Ages of instants, in the words of the server.
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const age = (seconds) => {
    const place = units.findIndex(([size]) => seconds >= size);
    if (place < 0) return "now";
    const [size, unit] = units[place];
    const rest = units[place + 1] && size > 1 ? Math.floor((seconds % size) / units[place + 1][0]) : 0;
    return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${units[place + 1][1]}` : ""}`;
  };
  setInterval(() => {
    if (live.paused) return;
    for (const each of all("time[datetime]")) {
      const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
      if (!/ago|^in |now/.test(each.textContent) || Number.isNaN(seconds)) continue;
      const text = age(Math.abs(seconds));
      each.textContent = text === "now" ? text : seconds > 0 ? `${text} ago` : `in ${text}`;
    }
  }, 5000);

  // --- Dialogs: the form of a change is the page that its link leads to.
  let dialog;
  const openDialog = async (address) => {
    const page = await load(address);
    const form = $("[data-form]", page);
    if (!form) throw new Error("the page has no form");
    dialog = dialog || body.appendChild(make("dialog", { class: "change" }));
    const title = $("h1", form);
    if (title) { title.id = "change-title"; dialog.setAttribute("aria-labelledby", "change-title"); }
    dialog.replaceChildren(make("div", { class: "in" }, document.importNode(form, true)));
    const back = $("input[name=next]", dialog);
    if (back) back.value = location.pathname + location.search;
    dialog.showModal();
    const first = $("form input:not([type=hidden]), form textarea, form select", dialog);
    if (first) first.focus();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
      event.preventDefault();
      openDialog(link.href).catch(() => { location.href = link.href; });
    }
    const close = event.target.closest("[data-close]");
    if (close && dialog && dialog.open) { event.preventDefault(); dialog.close(); }
    if (event.target === dialog || event.target.id === "help") event.target.close();
    const copied = event.target.closest("[data-copy]");
    if (copied && navigator.clipboard) navigator.clipboard.writeText(copied.textContent);
  });

  // --- Keyboard.
  const places = { o: "/", q: "/queues", j: "/jobs", f: "/failures", w: "/workers", s: "/schedules", d: "/dead-letters", a: "/audit" };
  let begun = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select")) return;
    const follows = Date.now() - begun < 1200;
    begun = 0;
    if (follows && places[event.key]) location.href = root + places[event.key];
    else if (event.key === "g") begun = Date.now();
    else if (event.key === "/") {
      event.preventDefault();
      const box = $("[data-filter]");
      if (box) { box.focus(); box.select(); } else location.href = `${root}/jobs#filter`;
    } else if (event.key === "?") $("#help").showModal();
    else if (event.key === "p" && badge.isConnected) pause();
  });
  if (location.hash === "#filter" && $("#filter")) $("#filter").focus();

  // --- The chart of the overview: uPlot draws the rows of the table in place of the drawing of the server.
  let chart;
  const plot = () => {
    const spot = $("[data-chart]");
    const rows = all("#minutes tbody tr");
    if (!spot || rows.length < 2 || !window.uPlot) return;
    const column = (place) => rows.map((row) => Number(row.cells[place].textContent));
    const data = [rows.map((row) => Number(row.dataset.minute)), column(1), column(2)];
    if (chart) { chart.setData(data); return; }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--ink-3"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px Geist, sans-serif" };
    const bars = uPlot.paths.bars({ size: [0.7, 14], radius: 0.2 });
    const label = $("svg", spot).getAttribute("aria-label");
    spot.replaceChildren();
    spot.setAttribute("role", "img");
    spot.setAttribute("aria-label", label);
    chart = new uPlot({
      width: spot.clientWidth, height: 190, legend: { show: false }, cursor: { y: false, points: { size: 7 } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toISOString().slice(11, 16)) }, { ...axis, size: 52, space: 40 }],
      series: [{}, { stroke: colour("--accent"), fill: colour("--accent-soft"), width: 2, points: { show: false } },
        { stroke: colour("--bad"), fill: colour("--bad"), width: 0, paths: bars, points: { show: false } }],
    }, data, spot);
    new ResizeObserver(() => chart.setSize({ width: spot.clientWidth, height: 190 })).observe(spot);
  };
  window.addEventListener("load", plot);
  listen();
})();
