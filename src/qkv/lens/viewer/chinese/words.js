// Texts of the views of word vectors in Chinese, by their English.

export const WORDS = {};
