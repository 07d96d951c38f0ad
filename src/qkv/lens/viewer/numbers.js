// Numbers as people read them, and means of matrices.

export const MIN_SHARE = 0.01; // least share that is listed

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const highest = (matrix) => matrix.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0) || 1;

export function mean(matrices) {
  return matrices[0].map((row, t) => row.map((_, s) => matrices.reduce((sum, one) => sum + one[t][s], 0) / matrices.length));
}
