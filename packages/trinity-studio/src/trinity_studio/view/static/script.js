// Keeps the top of a run's page up to date while the run goes on. Nothing else needs a script.
"use strict";

const EVERY_MS = 2500;
const live = document.getElementById("live");

async function refresh() {
  const answer = await fetch(live.dataset.from, { cache: "no-store" });
  if (!answer.ok) return;
  const fresh = await answer.text();
  if (fresh !== live.dataset.seen) {
    live.dataset.seen = fresh;
    live.innerHTML = fresh; // of our own server, which escapes all text of others
  }
}

if (live && live.dataset.from) {
  setInterval(() => {
    if (!document.hidden) refresh().catch(() => {});
  }, EVERY_MS);
}
