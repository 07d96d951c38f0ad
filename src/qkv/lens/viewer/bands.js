// Two texts broken into lines together, so that words which belong together stand above one another.

const BAND = 0.75; // cost of a band, in words' worth of links: a break must not gain much to be avoided

/**
 * Cut two texts into bands [first, end of the source, first, end of the target]. In each band both parts are at most `width` wide
 * (a single wider word is a part by itself), and as much of the links [source, target, share] as possible stays inside a band.
 */
export function bandsOf(widths, links, width) {
  const [n, m] = widths.map((list) => list.length);
  const inside = sums(links, n, m);
  const begins = widths.map((list) => list.map((_, end) => firstThatFits(list, end + 1, width)));
  const reach = (side, end) => (end ? begins[side][end - 1] : 0);
  const best = Array.from({ length: n + 1 }, () => new Float64Array(m + 1).fill(-Infinity));
  const from = Array.from({ length: n + 1 }, () => new Array(m + 1).fill(null));
  best[0][0] = 0;
  for (let i = 0; i <= n; i += 1) {
    for (let j = 0; j <= m; j += 1) {
      for (let a = reach(0, i); a <= i; a += 1) {
        for (let b = reach(1, j); b <= j; b += 1) {
          if (a === i && b === j) continue;
          const value = best[a][b] + inside(a, i, b, j) - BAND;
          if (value <= best[i][j]) continue;
          best[i][j] = value;
          from[i][j] = [a, b];
        }
      }
    }
  }
  const bands = [];
  for (let [i, j] = [n, m]; i || j; ) {
    const [a, b] = from[i][j];
    bands.unshift([a, i, b, j]);
    [i, j] = [a, b];
  }
  return bands;
}

/** The first word of the longest line that ends before `end`. */
function firstThatFits(widths, end, width) {
  let [first, sum] = [end - 1, widths[end - 1]];
  while (first > 0 && sum + widths[first - 1] <= width) sum += widths[(first -= 1)];
  return first;
}

/** A function that sums the links between a part of the source and a part of the target. */
function sums(links, n, m) {
  const table = Array.from({ length: n + 1 }, () => new Float64Array(m + 1));
  for (const [s, t, share] of links) table[s + 1][t + 1] += share;
  for (let i = 1; i <= n; i += 1) for (let j = 1; j <= m; j += 1) table[i][j] += table[i - 1][j] + table[i][j - 1] - table[i - 1][j - 1];
  return (a, i, b, j) => table[i][j] - table[a][j] - table[i][b] + table[a][b];
}
