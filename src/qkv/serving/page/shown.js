// A view of the viewer in a panel's card; what is chosen in it stands in the address.

import { readState, writeState } from "../viewer/state.js";
import { show } from "../viewer/viewer.js";

/** Draw a view; `ask(choice)` returns a promise of the view of another choice, for those views that offer some. */
export function showView(panel, view, ask) {
  let isDrawing = !panel.see;
  let usual = ""; // the state that a view begins with needs no place in the address
  const onState = (state) => {
    const written = writeState(state);
    if (isDrawing) usual = written;
    panel.see = written === usual ? "" : written;
    panel.onChange(panel.values(), false);
  };
  show(panel.result.querySelector(".view"), view, { state: readState(panel.see), onState, ask });
  isDrawing = false;
}

/** The part of a view's state that its numbers depend on, to be asked for with them. */
export function chosen(panel, names) {
  return Object.fromEntries(Object.entries(readState(panel.see)).filter(([name]) => names.includes(name)));
}
