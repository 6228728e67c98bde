"use strict";
(() => {
  const root = document.documentElement;
  const samples = [...document.querySelectorAll(".sample")];
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const help = document.getElementById("help");
  document.querySelector("nav").hidden = false;

  // A page in a frame of a notebook has no address of its own: what is open is a class, not a target.
  const shown = () => samples.filter((one) => !one.hidden);
  const opened = () => samples.find((one) => one.classList.contains("open"));
  const tile = (sample) => sample.querySelector(".tile");

  function open(sample) {
    for (const one of samples) {
      one.classList.remove("open");
      one.classList.add("closed");
    }
    if (sample) {
      sample.classList.add("open");
      sample.scrollTop = 0;
      tile(sample).focus({ preventScroll: true });
    }
    document.body.style.overflow = sample ? "hidden" : "";
  }

  function close() {
    const sample = opened();
    open(null);
    if (sample) tile(sample).focus();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const sample of samples) {
      sample.hidden = !words.every((word) => sample.dataset.text.includes(word));
    }
    found.textContent = words.length ? `${shown().length} of ${samples.length}` : "";
  }

  function step(by) {
    const list = shown();
    if (!list.length) return;
    const now = opened() || document.activeElement.closest(".sample");
    const at = list.indexOf(now);
    const next = list[at < 0 ? 0 : Math.min(Math.max(at + by, 0), list.length - 1)];
    if (opened()) open(next);
    else tile(next).focus();
  }

  function across() {
    const list = shown();
    if (!list.length) return 1;
    const top = list[0].offsetTop;
    const second = list.findIndex((one) => one.offsetTop > top);
    return second < 0 ? list.length : second;
  }

  function theme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) {
      event.preventDefault();
      if (link.classList.contains("close")) close();
      else if (!link.closest(".sample.open")) open(link.closest(".sample"));
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (!help.hidden) help.hidden = true;
      else if (event.target === search) search.blur();
      else close();
      return;
    }
    if (event.target === search) {
      if (event.key === "Enter" || event.key === "ArrowDown") {
        event.preventDefault();
        if (shown().length) tile(shown()[0]).focus();
      }
      return;
    }
    const keys = {
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      "/": () => { close(); search.focus(); search.select(); },
      "?": () => { help.hidden = !help.hidden; },
      t: theme,
    };
    if (!opened()) {
      keys.ArrowDown = () => step(across());
      keys.ArrowUp = () => step(-across());
    }
    if (Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  search.addEventListener("input", filter);
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("keys").addEventListener("click", () => { help.hidden = !help.hidden; });
  const wanted = samples.find((one) => `#${one.id}` === window.location.hash);
  if (wanted) open(wanted);
})();
