"""Let what is typed into a field of choices be chosen when a person goes on, not only by Enter."""

from __future__ import annotations

import streamlit as st

__all__ = ["choose_on_leaving"]

# Streamlit forgets it: Tab and a click elsewhere close the list, and put back what was chosen.
_SCRIPT = """<script>
(() => {
  if (window.trinityChooses) return;
  window.trinityChooses = true;
  const LIST = '[data-testid="stSelectboxVirtualDropdown"]';
  const typed = new WeakSet();
  const BOX = '[data-testid="stSelectbox"]';
  const fieldOf = (one) => one instanceof Element && one.closest(`${BOX} input`);
  const press = (field, type) => field.dispatchEvent(
    new KeyboardEvent(type, {key: 'Enter', code: 'Enter', bubbles: true, cancelable: true}));
  const choose = (field) => {
    if (!typed.delete(field)) return;
    press(field, 'keydown');
    press(field, 'keyup');
  };
  document.addEventListener('input', (event) => {
    const field = fieldOf(event.target);
    if (field) field.value ? typed.add(field) : typed.delete(field);
  }, true);
  document.addEventListener('keydown', (event) => {
    const field = fieldOf(event.target);
    if (!field || !event.isTrusted) return;
    if (event.key === 'Tab') choose(field);
    else if (event.key === 'Enter' || event.key === 'Escape') typed.delete(field);
  }, true);
  document.addEventListener('pointerdown', (event) => {
    const field = fieldOf(document.activeElement);
    if (!field || event.target.closest(LIST)) return;
    if (!field.closest(BOX).contains(event.target)) choose(field);
  }, true);
})();
</script>"""


def choose_on_leaving() -> None:
    """Put the script into the page; it takes no room there, and acts once."""
    with st.container(key="choosing"):
        st.html(_SCRIPT, unsafe_allow_javascript=True)
    st.html("<style>.st-key-choosing { display: none; }</style>")
