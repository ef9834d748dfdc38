"use strict";
for (const bar of document.querySelectorAll("[data-filters]")) {
  const items = [...document.querySelectorAll("[data-of='" + bar.dataset.filters + "']")];
  const told = bar.querySelector("[aria-live]");
  const apply = () => {
    const wanted = [...bar.querySelectorAll("select")].filter((s) => s.value !== "");
    let shown = 0;
    for (const item of items) {
      item.hidden = !wanted.every((s) => item.getAttribute("data-" + s.name) === s.value);
      shown += item.hidden ? 0 : 1;
    }
    told.textContent = shown + " of " + items.length + " shown";
  };
  bar.addEventListener("change", apply);
  bar.hidden = false;
  apply();
}
const closed = [];
window.addEventListener("beforeprint", () => {
  for (const d of document.querySelectorAll("details:not([open]):not(.folded)")) {
    closed.push(d);
    d.open = true;
  }
});
window.addEventListener("afterprint", () => {
  for (const d of closed.splice(0)) d.open = false;
});
