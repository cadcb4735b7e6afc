"use strict";
// Everything on the page is there without this script; it sorts, filters, folds and darkens.
(() => {
  const root = document.documentElement;
  const KEY = "reality-check-theme";

  // Some browsers forbid storage to local files: the choice then lasts as long as the page.
  const remembered = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* as above */ } };

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

  function themeButton(button) {
    const name = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      name();
    });
    prefersDark.addEventListener("change", name);
    name();
    button.hidden = false;
  }

  function foldButton(button) {
    const folds = () => [...document.querySelectorAll("main details")];
    const name = () => {
      button.textContent = folds().every((fold) => fold.open) ? "Fold all" : "Unfold all";
    };
    button.addEventListener("click", () => {
      const open = !folds().every((fold) => fold.open);
      for (const fold of folds()) fold.open = open;
      name();
    });
    for (const fold of folds()) fold.addEventListener("toggle", name);
    name();
    button.hidden = folds().length === 0;
  }

  // -- sorting -----------------------------------------------------------------------------------

  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function compare(a, b, index, numbers, sign) {
    const [left, right] = [a.cells[index], b.cells[index]];
    if (!numbers) return sign * words.compare(left.textContent, right.textContent);
    const [x, y] = [left.dataset.value, right.dataset.value];
    // What has no number stays below, whichever way the others stand.
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return sign * (Number(x) - Number(y));
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    if (original.length < 2) return;
    heads.forEach((head, index) => {
      const numbers = head.classList.contains("number");
      const order = numbers ? ["descending", "ascending"] : ["ascending", "descending"];
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = order[order.indexOf(head.getAttribute("aria-sort")) + 1];
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        const sign = next === "descending" ? -1 : 1;
        const rows = [...original];
        if (next) rows.sort((a, b) => compare(a, b, index, numbers, sign));
        body.append(...rows);
      });
    });
    table.classList.add("sortable");
  }

  // -- filtering ---------------------------------------------------------------------------------

  function filter(form) {
    const tables = [...document.querySelectorAll("#comparison table[data-category]")];
    const text = form.elements.namedItem("method");
    const boxes = (name) => [...form.querySelectorAll(`input[name="${name}"]`)];
    const unticked = (name) => new Set(
      boxes(name).filter((box) => !box.checked).map((box) => box.value));

    function apply() {
      const wanted = text.value.trim().toLowerCase();
      const [categories, metrics] = [unticked("category"), unticked("metric")];
      const methods = new Map();
      for (const table of tables) {
        table.parentElement.hidden = categories.has(table.dataset.category);
        [...table.tHead.rows[0].cells].forEach((head, index) => {
          const off = metrics.has(head.dataset.metric);
          for (const row of table.rows) row.cells[index].hidden = off;
        });
        for (const row of table.tBodies[0].rows) {
          if (row.className === "untrained") continue;
          const name = row.cells[0].textContent;
          row.hidden = !name.toLowerCase().includes(wanted);
          methods.set(name, !row.hidden);
        }
      }
      const shown = [...methods.values()].filter(Boolean).length;
      form.querySelector("output").textContent = `${shown} of ${methods.size} methods shown`;
    }

    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    form.hidden = false;
    apply();
  }

  // -- printing: what is folded belongs to the printed report ------------------------------------

  function unfoldForPrint() {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:not([open])")];
      for (const fold of opened) fold.open = true;
    });
    addEventListener("afterprint", () => { for (const fold of opened) fold.open = false; });
  }

  // A link into a fold opens it.
  function follow() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  }

  addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("#theme")) themeButton(button);
    for (const button of document.querySelectorAll("#folds")) foldButton(button);
    for (const table of document.querySelectorAll("main table")) sortable(table);
    for (const form of document.querySelectorAll("form.filter")) filter(form);
    unfoldForPrint();
    addEventListener("hashchange", follow);
    follow();
  });
})();
