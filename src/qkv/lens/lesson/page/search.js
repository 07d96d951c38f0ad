// The search, a row for each step: the beginnings that were kept, best first, and the way of the output.

import { draw } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { covered, frame, rect, text } from "./drawing.js";
import { share } from "./texts.js";

const [ROW, BOX, TOP] = [52, 34, 6];

export function searchPicture(one, width, known) {
  const high = one.rows.length * ROW + TOP - (ROW - BOX) + 4;
  if (!known(one.after)) return frame(width, 60, say("The search, covered until the first question is answered"), covered(0, 2, width, 54));
  const columns = Math.max(...one.rows.map((row) => row.length));
  const wide = Math.min(190, (width - 26) / columns);
  const middle = (column) => 26 + (column + 0.5) * wide;
  const lines = one.rows.flatMap((row, n) =>
    row.map((node, column) => {
      if (!n) return draw("g", {});
      const [from, to] = [TOP + (n - 1) * ROW + BOX, TOP + n * ROW];
      const bend = (from + to) / 2;
      const path = `M${middle(node.parent)} ${from}C${middle(node.parent)} ${bend} ${middle(column)} ${bend} ${middle(column)} ${to}`;
      return draw("path", { d: path, class: node.best ? "way best" : "way" });
    }),
  );
  const boxes = one.rows.flatMap((row, n) => [
    text(0, TOP + n * ROW + BOX / 2, String(n + 1), { kind: "faded", size: 12 }),
    ...row.map((node, column) => {
      const [x, y] = [middle(column) - wide / 2 + 3, TOP + n * ROW];
      const kind = `node${node.best ? " best" : ""}${node.ended ? " ended" : ""}`;
      return draw(
        "g",
        {},
        rect(x, y, wide - 6, BOX, { class: kind }),
        text(middle(column), y + 12, node.token, { anchor: "middle", kind: node.best ? "word answer" : "word", room: wide - 14 }),
        text(middle(column), y + 26, share(node.probability), { anchor: "middle", kind: "faded digits", size: 11 }),
      );
    }),
  ]);
  const way = one.rows.map((row) => row.find((node) => node.best)).filter(Boolean).map((node) => node.token);
  const order = [...lines.filter((line) => !line.classList.contains("best")), ...lines.filter((line) => line.classList.contains("best"))];
  return frame(width, high, say("The way of the output: {way}", { way: way.join(" ") }), ...order, ...boxes);
}
