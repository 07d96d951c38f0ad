// Texts of the laboratory: arithmetic, changes, patching, layers, steps, training in Chinese, by their English.

export const LABORATORY = {};
