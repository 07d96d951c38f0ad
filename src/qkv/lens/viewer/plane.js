// Points in a plane: their place in a picture that can be zoomed and moved, labels that do not overlap, searches by name.

const [GAP, LINE] = [7, 16]; // between a point and its label, and the height of a label, in pixels
const SIDES = [[1, 0], [-1, 0], [0, -1], [0, 1]];
const [LEAST, MOST] = [0.8, 60]; // of zoom

/** The view of a whole plane: a point (x, y) is drawn at (x * scale + left, top - y * scale). */
export function wholePlane(points, width, height, margin = 36) {
  const [low, high] = [0, 1].map((axis) => points.map((point) => point[axis])).reduce(
    ([least, most], values) => [[...least, Math.min(...values)], [...most, Math.max(...values)]], [[], []],
  );
  const spans = [0, 1].map((axis) => high[axis] - low[axis] || 1);
  const scale = Math.min((width - 2 * margin) / spans[0], (height - 2 * margin) / spans[1]);
  return { scale, left: width / 2 - (scale * (low[0] + high[0])) / 2, top: height / 2 + (scale * (low[1] + high[1])) / 2 };
}

export const placed = (view, [x, y]) => [x * view.scale + view.left, view.top - y * view.scale];

/** The view zoomed by a factor, with what is at (x, y) staying there; `whole` bounds how far. */
export function zoomed(view, factor, [x, y], whole) {
  const scale = Math.min(MOST * whole.scale, Math.max(LEAST * whole.scale, view.scale * factor));
  const grown = scale / view.scale;
  return { scale, left: x + (view.left - x) * grown, top: y + (view.top - y) * grown };
}

/** The view moved so that a point is in the middle. */
export const centred = (view, [x, y], width, height) => ({ ...view, left: width / 2 - x * view.scale, top: height / 2 + y * view.scale });

/** Boxes along a line, which labels should not cover. */
export function boxesAlong([x, y], [right, down], count = 60) {
  return [...Array(count).keys()].slice(1, -1).map((n) => {
    const [across, along] = [x + ((right - x) * n) / (count - 1), y + ((down - y) * n) / (count - 1)];
    return { left: across - 4, right: across + 4, top: along - 4, bottom: along + 4 };
  });
}

/** Find a place for each label beside its point; those first in the list choose first, null has none. -> [{ left, top }] */
export function placeLabels(spots, width, height, covered = []) {
  const taken = [...covered];
  return spots.map(({ x, y, wide }) => {
    for (const [across, down] of SIDES) {
      const left = across ? x + across * (GAP + wide / 2) - wide / 2 : x - wide / 2;
      const top = y + down * (GAP + LINE / 2) - LINE / 2;
      const box = { left, top, right: left + wide, bottom: top + LINE };
      const inside = left >= 0 && top >= 0 && box.right <= width && box.bottom <= height;
      if (inside && taken.every((one) => one.right <= left || one.left >= box.right || one.bottom <= top || one.top >= box.bottom)) {
        taken.push(box);
        return { left, top };
      }
    }
    return null;
  });
}

/** The numbers of the words that a search means: the word itself first, then those that begin with it, then those that have it. */
export function search(words, text, most = 20) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const rank = (word) => (word === wanted ? 0 : word.startsWith(wanted) ? 1 : word.includes(wanted) ? 2 : 3);
  const ranked = words.map((word, n) => [rank(word.toLowerCase()), n]).filter(([value]) => value < 3);
  return ranked.sort((one, two) => one[0] - two[0] || one[1] - two[1]).slice(0, most).map(([, n]) => n);
}
