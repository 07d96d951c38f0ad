// Places for labels beside points, so that none is cut and none covers another label or a point.

const GAP = 6; // between a point and its label

const crosses = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/**
 * Place labels of `points` ({ x, y, wide, high }: the size of the label) in a picture of `width` and `height`. Return for each point
 * the left and the top of its label, or null where there is no room.
 */
export function placeLabels(points, width, height, radius = 4) {
  const taken = points.map(({ x, y }) => ({ left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }));
  return points.map(({ x, y, wide, high }, n) => {
    const [middle, above, below] = [y - high / 2, y - high - GAP, y + GAP];
    const [right, left, centre] = [x + GAP, x - GAP - wide, x - wide / 2];
    const spots = [[right, middle], [left, middle], [centre, above], [centre, below]];
    spots.push([right, above], [right, below], [left, above], [left, below]);
    for (const [l, t] of spots) {
      const box = { left: l, top: t, right: l + wide, bottom: t + high };
      const inside = l >= 0 && t >= 0 && box.right <= width && box.bottom <= height;
      if (inside && taken.every((one, k) => k === n || !crosses(box, one))) {
        taken.push(box);
        return { left: l, top: t };
      }
    }
    return null;
  });
}
