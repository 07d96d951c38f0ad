// Texts of the views of attention in Chinese, by their English.

export const ATTENTION = {};
